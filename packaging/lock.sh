#!/usr/bin/env bash
# Writes packaging/locked/*.txt anew: the libraries in the package, and what builds it, each of the
# version in packaging/constraints.txt and with the digests of its files for Debian 12 on amd64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly server='isal lz4 markdown-it-py mdurl numpy psutil Pygments PyYAML pyzmq rich
    setproctitle sdnotify tomli zstandard'
readonly build='Cython setuptools shtab wheel'

lock() {
    local title=$1 folder name line file
    shift
    folder=$(mktemp -d)
    printf '# %s Written by packaging/lock.sh.\n' "$title"
    for name in "$@"; do
        line=$(grep -i "^$name==" packaging/constraints.txt)
        .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
            --dest "$folder/$name" "$line" >&2
        file=("$folder/$name"/*)
        printf '%s \\\n    --hash=sha256:%s\n' "$line" "$(sha256sum "${file[0]}" | cut -d ' ' -f 1)"
    done
    rm -r "$folder"
}

mkdir -p packaging/locked
# shellcheck disable=SC2086
lock 'Libraries that the Debian package brings.' $server >packaging/locked/server.txt
# shellcheck disable=SC2086
lock 'What the Debian package is built with.' $build >packaging/locked/build.txt
