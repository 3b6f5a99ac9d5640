#!/usr/bin/env bash
# mypyc 2.4.1 (in mypy's package): the lower bound of a slice is computed twice.
#
# `rest = rest[send(rest) :]` is how a sender goes on behind what the kernel took. Of a memoryview the
# compiled function calls `send` twice, and throws the first answer away; the same module, not compiled,
# calls it once. Each part of a stream leaves twice so, and the other side meets bytes that belong to no
# message. Named before (`sent = send(rest)`, then `rest[sent:]`) it is called once, and so it is in the
# slices of bytes and of lists, for which mypyc has functions of its own. Beside it: a NamedTuple with a
# field of that type compiles, and raises KeyError when its module is imported.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'mypy==2.4.1' 'setuptools==80.9.0'
cd "$folder"
cat >slices.py <<'PY'
calls = 0


def send(size: int) -> int:
    global calls
    calls += 1
    return size


def view_in_place(data: bytes) -> int:
    rest = memoryview(data)
    rest = rest[send(len(rest)) :]
    return len(rest)


def view_named_before(data: bytes) -> int:
    rest = memoryview(data)
    sent = send(len(rest))
    rest = rest[sent:]
    return len(rest)


def bytes_in_place(data: bytes) -> int:
    data = data[send(len(data)) :]
    return len(data)


def list_in_place(data: bytes) -> int:
    rest = list(data)
    rest = rest[send(len(rest)) :]
    return len(rest)
PY
cat >fields.py <<'PY'
from typing import NamedTuple


class Piece(NamedTuple):
    size: int
    data: memoryview
PY
cat >shown.py <<'PY'
import importlib
import sys

import slices

print("compiled" if not slices.__file__.endswith(".py") else "plain", end=":")
for name in ("view_in_place", "view_named_before", "bytes_in_place", "list_in_place"):
    before = slices.calls
    left = getattr(slices, name)(b"twelve bytes")
    print(f" {name} {slices.calls - before} call, {left} left;", end="")
try:
    print(" fields", importlib.import_module("fields").Piece(1, memoryview(b"x")).size)
except KeyError as error:
    print(" fields", type(error).__name__, error)
PY
plain=$("$folder/venv/bin/python" shown.py)
"$folder/venv/bin/mypyc" slices.py fields.py >compiled.log 2>&1 || { cat compiled.log; exit 1; }
found="$plain
$("$folder/venv/bin/python" shown.py)"
echo "$found"
wanted="plain: view_in_place 1 call, 0 left; view_named_before 1 call, 0 left; bytes_in_place 1 call, 0 left; list_in_place 1 call, 0 left; fields 1
compiled: view_in_place 2 call, 0 left; view_named_before 1 call, 0 left; bytes_in_place 1 call, 0 left; list_in_place 1 call, 0 left; fields KeyError 'memoryview'"
[ "$found" = "$wanted" ] || { echo "this has changed; expected:"; echo "$wanted"; exit 1; }
