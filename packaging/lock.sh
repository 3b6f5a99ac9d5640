#!/usr/bin/env bash
# Writes packaging/locked/*.txt anew: the libraries in the packages, and what builds these, each of the
# version in packaging/constraints.txt and with the digests of its files for every suite and
# architecture of packaging/suites.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. packaging/suites.sh

readonly server='anyio boto3 botocore cffi cryptography grpcio h11 idna isal Jinja2 jmespath lz4 markdown-it-py
    MarkupSafe mdurl numpy prometheus-client protobuf psutil py-spy pycparser Pygments python-dateutil PyYAML pyzmq rich
    s3transfer setproctitle sdnotify six starlette tomli typing_extensions urllib3 zstandard'
readonly build='Cython setuptools shtab wheel'

lock() {
    local title=$1 folder name suite architecture target lines=() line digest
    shift
    folder=$(mktemp -d)
    for name in "$@"; do
        lines+=("$(grep -i "^$name==" packaging/constraints.txt)")
    done
    for suite in $(suite_names); do
        for architecture in amd64 arm64; do
            read -r -d '' -a target < <(pip_target "$suite" "$architecture" && printf '\0')
            for line in "${lines[@]}"; do
                .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
                    "${target[@]}" --dest "$folder/${line%%=*}" "$line" >&2
            done
        done
    done
    printf '# %s Written by packaging/lock.sh.\n' "$title"
    for line in "${lines[@]}"; do
        printf '%s' "$line"
        for digest in $(sha256sum "$folder/${line%%=*}"/* | cut -d ' ' -f 1 | sort -u); do
            printf ' \\\n    --hash=sha256:%s' "$digest"
        done
        echo
    done
    rm -r "$folder"
}

mkdir -p packaging/locked
# shellcheck disable=SC2086
lock 'Libraries that the Debian packages bring.' $server >packaging/locked/server.txt.new
# shellcheck disable=SC2086
lock 'What the Debian packages are built with.' $build >packaging/locked/build.txt.new
for name in server build; do
    mv "packaging/locked/$name.txt.new" "packaging/locked/$name.txt"
done
