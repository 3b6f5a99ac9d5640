#!/usr/bin/env bash
# Builds the source archive, and from it the wheels of all distributions (distributions/): those for any
# machine, and the node's with compiled kernels for each Python that is found here with its headers.
# Looks at them with twine, and prints where they are.
#
#   make-wheels.sh [--output FOLDER]
#
#   LEDGERMQ_PYTHONS='python3.11 /opt/python3.13/bin/python'   take these interpreters
#
# FOLDER is dist/. Compiled wheels are for the oldest C library that their kernels run with
# (manylinux), which auditwheel finds out. A Python without a wheel of its own takes the one for any
# machine, whose kernels are plain Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

output=dist
while [ $# != 0 ]; do
    case $1 in
        --output) output=$2 ;;
        *) echo "make-wheels: not known: $1" >&2 && exit 1 ;;
    esac
    shift 2
done
readonly versions='3.11 3.12 3.13 3.14'

say() { printf 'make-wheels: %s\n' "$*" >&2; }

# What git knows, as it is in the work tree; without git, the folder as it is.
copy_tree() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard |
            tar -c --null --files-from=- --ignore-failed-read | tar -x -C "$1"
    else
        tar -c --exclude=./.venv --exclude=./build --exclude=./dist . | tar -x -C "$1"
    fi
    chmod -R u+w,go-w,a+rX "$1"
}

can_compile_for() {
    "$1" -c 'import sys, sysconfig, pathlib
sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())' 2>/dev/null
}

# One interpreter a version: Debian's, that of the path, one that pyenv has made.
interpreters() {
    local version candidate found
    if [ -n "${LEDGERMQ_PYTHONS:-}" ]; then
        tr ' ' '\n' <<<"$LEDGERMQ_PYTHONS"
        return
    fi
    for version in $versions; do
        found=''
        for candidate in "/usr/bin/python$version" "python$version" \
            "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
            if can_compile_for "$candidate"; then
                found=$candidate
                break
            fi
        done
        [ -n "$found" ] && echo "$found" || say "no Python $version with its headers: no wheel for it"
    done
}

# The kernels are optional to setuptools, and must not be to a wheel that is said to have them.
check_kernels() {
    local kernel contents
    contents=$(python3 -m zipfile --list "$1")
    for kernel in $(sed -n '/^KERNELS = (/,/^)/s/^ *"\(.*\)",$/\1/p' setup.py); do
        grep -q "formats/kernels/$kernel\.cpython" <<<"$contents" ||
            { say "$1 lacks the kernel $kernel"; exit 1; }
    done
}

# The wheel of one distribution, from the sources of the archive.
build_wheel() {
    local python=$1 distribution=$2 folder=$3
    rm -rf "$scratch/sources"
    mkdir "$scratch/sources"
    tar -x --strip-components 1 --file "$archive" --directory "$scratch/sources"
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-cache-dir \
        --wheel-dir "$folder" "$scratch/sources/distributions/$distribution" >&2
}

main() {
    local tools scratch archive distribution python wheel
    command -v "${CC:-cc}" >/dev/null || { say 'no C compiler'; exit 1; }
    tools=$(packaging/release-tools.sh)
    PATH=$tools:$PATH
    # For what pip fetches to build with, too: older and newer ones ask by different names.
    export PIP_CONSTRAINT=$PWD/packaging/constraints.txt
    export PIP_BUILD_CONSTRAINT=$PIP_CONSTRAINT
    umask 022
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
    export SOURCE_DATE_EPOCH
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$scratch'" EXIT
    mkdir -p "$scratch/tree" "$output"
    copy_tree "$scratch/tree"
    cp "$(packaging/make-site.sh)" "$scratch/tree/ledgermq/observer/console/"
    say 'the source archive, and from it the wheels for any machine'
    "$tools/python" -m build --sdist --outdir "$scratch/done" "$scratch/tree" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log" >&2; exit 1; }
    archive=$(echo "$scratch"/done/*.tar.gz)
    for distribution in client node web spark; do
        LEDGERMQ_PURE=1 build_wheel "$tools/python" "$distribution" "$scratch/done"
    done
    for python in $(interpreters); do
        say "a wheel with kernels for $python"
        rm -rf "$scratch/raw"
        build_wheel "$python" node "$scratch/raw"
        wheel=$(echo "$scratch"/raw/*.whl)
        check_kernels "$wheel"
        auditwheel repair --strip --wheel-dir "$scratch/done" "$wheel" >"$scratch/log" 2>&1 ||
            { cat "$scratch/log" >&2; exit 1; }
    done
    twine check --strict "$scratch"/done/* >&2
    for wheel in "$scratch"/done/*; do
        cp "$wheel" "$output/"
        echo "$output/${wheel##*/}"
    done
}

main
