#!/usr/bin/env bash
# Builds the Debian package of this checkout, in a scratch tree, and prints where it is.
#
#   make-deb.sh [--output FOLDER] [--version VERSION] [--scratch FOLDER]
#
# FOLDER is dist/, VERSION that of the library. The libraries are fetched once, into
# build/wheelhouse; what is there is taken as it is when its digests are those of packaging/locked.
# The same files and the same commit's date make the same bytes, wherever that is done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

output=dist version='' scratch=''
while [ $# != 0 ]; do
    case $1 in
        --output) output=$2 ;;
        --version) version=$2 ;;
        --scratch) scratch=$2 ;;
        *) echo "make-deb: not known: $1" >&2 && exit 1 ;;
    esac
    shift 2
done
readonly wheelhouse=$PWD/build/wheelhouse
mkdir -p "$output" "$wheelhouse"
output=$(realpath "$output")

say() { printf 'make-deb: %s\n' "$*" >&2; }

# What git knows, as it is in the work tree; without git, everything but what is built.
listed_files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . \( -path ./.venv -o -path ./build -o -path ./dist \) -prune -o \
            \( -type f -o -type l \) -printf '%P\0'
    fi
}

commit_epoch() {
    git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md
}

fetch_wheels() {
    local stamp locked
    stamp=$(sha256sum packaging/locked/*.txt)
    [ "$(cat "$wheelhouse/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    say "fetching the libraries into $wheelhouse"
    rm -rf "$wheelhouse" build/deb-python
    mkdir -p "$wheelhouse"
    /usr/bin/python3.11 -m venv build/deb-python
    for locked in build server; do
        build/deb-python/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
            --require-hashes --no-build-isolation --dest "$wheelhouse" \
            --requirement "packaging/locked/$locked.txt" --find-links "$wheelhouse" >&2
        # A source archive is asked for its metadata by the tools of its own.
        [ "$locked" != build ] || build/deb-python/bin/python -m pip install --quiet --no-deps \
            --no-index --find-links "$wheelhouse" --requirement packaging/locked/build.txt >&2
    done
    echo "$stamp" >"$wheelhouse/.stamp"
}

make_tree() {
    local tree=$1
    mkdir -p "$tree"
    listed_files | tar -c --null --files-from=- --ignore-failed-read | tar -x -C "$tree"
    cp -r packaging/debian "$tree/debian"
    cp packaging/systemd/sysusers.conf "$tree/debian/ledgermq.sysusers"
    cp packaging/systemd/tmpfiles.conf "$tree/debian/ledgermq.tmpfiles"
    cp -r "$wheelhouse" "$tree/debian/wheelhouse"
    # Modes of a checkout follow whoever made it.
    chmod -R u+w,go-w,a+rX "$tree"
    /usr/bin/python3.11 packaging/debian_changelog.py "$version" "$SOURCE_DATE_EPOCH" \
        >"$tree/debian/changelog"
}

main() {
    local tree log
    packaging/install-tools.sh deb
    umask 022
    SOURCE_DATE_EPOCH=$(commit_epoch)
    export SOURCE_DATE_EPOCH
    [ -n "$version" ] || version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' src/ledgermq/__init__.py)
    fetch_wheels
    [ -n "$scratch" ] || scratch=$(mktemp -d)
    tree=$scratch/ledgermq
    log=$scratch/build.log
    make_tree "$tree"
    if ! (cd "$tree" && env -u MAKEFLAGS -u MAKELEVEL dpkg-buildpackage -b -us -uc) >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        say "failed; the whole output is in $log"
        exit 1
    fi
    cp "$scratch/ledgermq_${version}_amd64.deb" "$output/"
    rm -rf "$scratch"
    echo "$output/ledgermq_${version}_amd64.deb"
}

main
