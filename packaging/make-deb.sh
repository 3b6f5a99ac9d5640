#!/usr/bin/env bash
# Builds the Debian packages of this checkout, each in a root of its suite, and prints where they are.
#
#   make-deb.sh [--suite SUITE] [--arch ARCH] [--output FOLDER] [--version VERSION] [--within FOLDER]
#
# SUITE and ARCH are of packaging/suites.txt, or all; without them that of this machine and amd64.
# FOLDER is dist/, VERSION that of the library. Libraries are fetched once, into build/wheelhouse; what
# is there is taken as it is when its digests are those of packaging/locked. The same files and the same
# commit's date make the same bytes in the same root, in whatever folder within it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. packaging/suites.sh

suites='' architectures=amd64 output=dist version='' within=/build
while [ $# != 0 ]; do
    case $1 in
        --suite) suites=$2 ;;
        --arch) architectures=$2 ;;
        --output) output=$2 ;;
        --version) version=$2 ;;
        --within) within=$2 ;;
        *) echo "make-deb: not known: $1" >&2 && exit 1 ;;
    esac
    shift 2
done
mkdir -p "$output"
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

# Wheels that the package brings, for its architecture, and what it is built with, for this one. A
# source archive is asked for its metadata by the tools of its own.
fetch_wheels() {
    local suite=$1 folder=$2 stamp architecture target python=build/deb-python
    shift 2
    stamp=$(sha256sum packaging/locked/*.txt packaging/suites.*)
    [ "$(cat "$folder/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 -m venv --clear "$python"
    for architecture in "$@"; do
        read -r -d '' -a target < <(pip_target "$suite" "$architecture" && printf '\0')
        step "fetching what builds the package, $suite $architecture" "$python/bin/python" -m pip download \
            --quiet --disable-pip-version-check --no-deps --require-hashes "${target[@]}" \
            --dest "$folder" --requirement packaging/locked/build.txt >&2
        "$python/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index \
            --find-links "$folder" setuptools wheel >&2
        step "fetching the libraries, $suite $architecture, into $folder" "$python/bin/python" -m pip download \
            --quiet --disable-pip-version-check --no-deps --require-hashes --no-build-isolation \
            "${target[@]}" --dest "$folder" --requirement packaging/locked/server.txt \
            --find-links "$folder" >&2
    done
    echo "$stamp" >"$folder/.stamp"
}

make_tree() {
    local tree=$1 suite=$2 architecture=$3 wheels=$4 full_version=$5
    mkdir -p "$tree"
    listed_files | tar -c --null --files-from=- --ignore-failed-read | tar -x -C "$tree"
    cp -r packaging/debian "$tree/debian"
    cp "$site" "$tree/ledgermq/observer/console/"
    cp packaging/systemd/sysusers.conf "$tree/debian/ledgermq.sysusers"
    cp packaging/systemd/tmpfiles.conf "$tree/debian/ledgermq.tmpfiles"
    cp -r "$wheels" "$tree/debian/wheelhouse"
    pip_target "$suite" "$architecture" >"$tree/debian/pip-target"
    python3 packaging/debian_changelog.py "$full_version" "$suite" "$SOURCE_DATE_EPOCH" \
        >"$tree/debian/changelog"
    # Modes of a checkout follow whoever made it.
    chmod -R u+w,go-w,a+rX "$tree"
}

# Writes a build's output to the file $1, and says which of debhelper's long steps begins when.
tell_steps() {
    local line began=$SECONDS steps
    steps='^ +(debian/rules override_)?(dh_(auto_[a-z]+|strip|shlibdeps|builddeb))( |$)'
    while IFS= read -r line; do
        printf '%s\n' "$line"
        [[ ! $line =~ $steps ]] || say "${BASH_REMATCH[2]}, after $((SECONDS - began)) s"
    done >"$1"
    say "ended after $((SECONDS - began)) s"
}

# The environment is the root's own, but for what the caller may want to differ.
build() {
    local suite=$1 architecture=$2 full_version wheels scratch command built
    full_version=$version-1$(suite_field "$suite" suffix)
    built=ledgermq_${full_version}_$architecture.deb
    wheels=$PWD/build/wheelhouse/$suite-$architecture
    mapfile -t needed < <(printf '%s\n' "$architecture" "$(dpkg --print-architecture)" | sort -u)
    fetch_wheels "$suite" "$wheels" "${needed[@]}"
    scratch=$(mktemp -d)
    make_tree "$scratch/ledgermq" "$suite" "$architecture" "$wheels" "$full_version"
    tar -C "$scratch" --owner=0 --group=0 -cf "$scratch/tree.tar" ledgermq
    command="cd $within/ledgermq && env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LANG=${LANG:-C.UTF-8} TZ=${TZ:-UTC} SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH \
        LEDGERMQ_DEB_COMPRESSION=${LEDGERMQ_DEB_COMPRESSION:-xz} \
        dpkg-buildpackage --build=binary --host-arch=$architecture -us -uc"
    suite_root "$suite" >/dev/null
    say "building $built; the whole output is in $scratch/build.log"
    if ! in_root "$suite" "mkdir -p \"\$1$within\"" "tar-in $scratch/tree.tar $within" \
        "chroot \"\$1\" sh -c '$command'" "download $within/$built $scratch/$built" \
        2>&1 | tell_steps "$scratch/build.log"; then
        tail -n 60 "$scratch/build.log" >&2
        say "failed; see $scratch/build.log"
        exit 1
    fi
    mv "$scratch/$built" "$output/"
    rm -rf "$scratch"
    echo "$output/$built"
}

# What is asked for, a suite and an architecture a line; what no package is built for is named.
targets() {
    local suite architecture
    [[ " all $all_architectures " == *" $architectures "* ]] ||
        { say "not one of $all_architectures: $architectures"; return 1; }
    [ "$architectures" != all ] || architectures=$all_architectures
    for suite in $suites; do
        suite_field "$suite" architectures >/dev/null || return
        for architecture in $architectures; do
            if has_architecture "$suite" "$architecture"; then
                echo "$suite $architecture"
            else
                say "LEFT OUT: $suite $architecture: packaging/suites.txt says why"
            fi
        done
    done
}

main() {
    local suite architecture wanted site
    [ -n "$suites" ] || suites=$(own_suite)
    [ "$suites" != all ] || suites=$(suite_names)
    wanted=$(targets)
    [ -n "$wanted" ] || exit 1
    packaging/install-tools.sh deb
    umask 022
    SOURCE_DATE_EPOCH=$(commit_epoch)
    export SOURCE_DATE_EPOCH
    [ -n "$version" ] || version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' ledgermq/__init__.py)
    site=$(packaging/make-site.sh)
    while read -r suite architecture; do
        build "$suite" "$architecture" </dev/null
    done <<<"$wanted"
}

main
