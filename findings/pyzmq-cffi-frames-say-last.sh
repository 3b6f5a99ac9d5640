#!/usr/bin/env bash
# pyzmq 27.2.0 on PyPy 3.11 (7.3.19, Debian 13): each part received as a frame says that it is the last.
#
# `socket.recv(copy=False)` gives a Frame, whose `more` says whether another part of the message follows.
# On CPython it does. In the backend that PyPy has (zmq.backend.cffi) `more` is an attribute of the class,
# False, and nothing sets it: a reader that goes by it takes a message of three parts for three messages.
# The option RCVMORE of the socket tells the truth there, and `recv_multipart` goes by that.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=minbase --include=pypy3 trixie "$folder/root"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --implementation pp --python-version 3.11 --abi pypy311_pp73 --platform manylinux_2_28_x86_64 \
    --dest "$folder" 'pyzmq==27.2.0'
mkdir "$folder/root/libraries"
"$folder/venv/bin/python" -m zipfile -e "$folder"/pyzmq-*.whl "$folder/root/libraries"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyzmq==27.2.0'
cat >"$folder/parts.py" <<'PY'
import sys

import zmq

context = zmq.Context()
here, there = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
here.bind("inproc://parts")
there.connect("inproc://parts")
here.send_multipart([b"1", b"2", b"3"])
told = []
for _ in range(3):
    frame = there.recv(copy=False)
    told.append((frame.bytes.decode(), bool(frame.more), bool(there.getsockopt(zmq.RCVMORE))))
print(sys.implementation.name, told)
PY
cp "$folder/parts.py" "$folder/root/parts.py"
cpython=$("$folder/venv/bin/python" "$folder/parts.py")
pypy=$(PYTHONPATH=/libraries chroot "$folder/root" pypy3 /parts.py 2>/dev/null)
printf '%s\n%s\n' "$cpython" "$pypy"
[ "$cpython" = "cpython [('1', True, True), ('2', True, True), ('3', False, False)]" ]
[ "$pypy" = "pypy [('1', False, True), ('2', False, True), ('3', False, False)]" ]
echo "as described"
