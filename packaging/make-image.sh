#!/usr/bin/env bash
# Builds an image of a node for tests in CI, of this machine's suite and architecture, and prints where it is:
# an archive that `docker load` and `podman load` take. image/entry.sh says what it runs, image/compose.yaml
# has three of them.
#
#   make-image.sh [--wheels FOLDER] [--output FOLDER]
#
# FOLDER is dist/, where `make wheel` leaves what is installed; the libraries are those of packaging/locked,
# fetched once. Whoever is not root needs the package uidmap.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. packaging/suites.sh

wheels=dist output=dist
while [ $# != 0 ]; do
    case $1 in
        --wheels) wheels=$2 ;;
        --output) output=$2 ;;
        *) echo "make-image: not known: $1" >&2 && exit 1 ;;
    esac
    shift 2
done

say() { printf 'make-image: %s\n' "$*" >&2; }

# A library that is there as sources is built by the Python of the suite, which is this machine's, with the
# tools that the Debian package is built with: of its own it has none, or too old ones.
fetch_libraries() {
    local folder=$1 stamp
    stamp=$(sha256sum packaging/locked/server.txt)
    [ "$(cat "$folder/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    say "fetching the libraries into $folder"
    rm -rf "$folder"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --requirement packaging/locked/build.txt >&2
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --require-hashes \
        --no-build-isolation --wheel-dir "$folder" --requirement packaging/locked/server.txt >&2
    echo "$stamp" >"$folder/.stamp"
}

# What stands beside Debian's packages, below the folder $1.
make_tree() {
    local home=$1/usr/lib/ledgermq site
    site=$home/lib/python$version_of_python/site-packages
    mkdir -p "$home/bin" "$1/usr/bin"
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" \
        --find-links "$wheels" "$libraries"/*.whl ledgermq ledgermq-node ledgermq-web >&2
    # Not for tests: launchers, tests of libraries, and Amazon's, which an archive in a bucket needs.
    rm -rf "$site"/{bin,boto3,boto3-*,botocore,botocore-*,s3transfer,s3transfer-*}
    find "$site" -type d -name tests -prune -exec rm -r {} +
    # The account that runs them may write none beside them.
    "$python" -m compileall -q --invalidation-mode unchecked-hash -s "$1" -p / "$site"
    ln -s "/usr/bin/python$version_of_python" "$home/bin/python3"
    printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' \
        "$version_of_python" >"$home/pyvenv.cfg"
    install -m 755 packaging/debian/ledgermq.sh "$1/usr/bin/ledgermq"
    install -m 755 packaging/debian/ledgermqd.sh "$1/usr/bin/ledgermqd"
    install -m 755 packaging/image/entry.sh "$1/usr/bin/ledgermq-image"
    chmod -R u+w,go-w,a+rX "$1"
}

main() {
    local suite scratch version
    umask 022
    suite=$(own_suite)
    version_of_python=$(suite_field "$suite" python)
    version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' ledgermq/__init__.py)
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
    export SOURCE_DATE_EPOCH
    "/usr/bin/python$version_of_python" -m venv --clear build/image-python
    python=build/image-python/bin/python
    libraries=build/wheelhouse/image-$suite
    fetch_libraries "$libraries"
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$scratch'" EXIT
    make_tree "$scratch/tree"
    tar -C "$scratch/tree" --owner=0 --group=0 --sort=name -cf "$scratch/tree.tar" .
    say "a root of $suite"
    # What is in /run stays: the folder for sockets.
    mmdebstrap --quiet --variant=minbase --include=openssl,python3 --skip=cleanup/run \
        '--aptopt=Acquire::Languages "none"' '--dpkgopt=path-exclude=/usr/share/locale/*' \
        '--dpkgopt=path-exclude=/usr/share/man/*' '--dpkgopt=path-exclude=/usr/share/doc/*' \
        --customize-hook="tar-in $scratch/tree.tar /" \
        --customize-hook='chroot "$1" useradd --system --home-dir /var/lib/ledgermq ledgermq' \
        --customize-hook='chroot "$1" install -d -o ledgermq -g ledgermq /var/lib/ledgermq /run/ledgermq' \
        "$suite" "$scratch/layer.tar" - <<<"$(suite_sources "$suite")" >&2
    mkdir -p "$output"
    "$python" packaging/image/oci_archive.py "$scratch/layer.tar" "$scratch/image.tar" "$version" \
        "$(dpkg --print-architecture)"
    mv "$scratch/image.tar" "$output/ledgermq-$version.oci.tar"
    echo "$output/ledgermq-$version.oci.tar"
}

main
