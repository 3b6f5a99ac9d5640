#!/bin/sh
# Fuzzes each decoder in turn with coverage, for so many seconds together; what is found stays in
# tests/fuzz/corpus. Ends with 1 when one was broken: its file is called crash-….
#
#     packaging/fuzz.sh [SECONDS]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-3600}
python=.venv/bin/python
"$python" -c 'import atheris' 2>/dev/null || "$python" -m pip install --quiet 'atheris==3.0.0'
names=$(PYTHONPATH=. "$python" -c 'from tests.fuzz.decoders import DECODERS as all; print("\n".join(all))')
count=$(printf '%s\n' "$names" | wc -l)
each=$((seconds / count > 0 ? seconds / count : 1))
status=0
IFS='
'
for name in $names; do
    echo "== $name, $each s"
    PYTHONPATH=. "$python" -m tests.fuzz.fuzz_decoder "$name" "$each" || status=1
done
exit $status
