#!/usr/bin/env bash
# Makes a signed apt repository of packages, for any web server that gives out files, and prints where
# it is.
#
#   make-apt-repo.sh --key KEY [--url URL] [--output FOLDER] [PACKAGE...]
#
# KEY is one that gpg has the secret of, URL where hosts will find the repository, FOLDER dist/apt.
# Without a PACKAGE all are built first: every suite and architecture of packaging/suites.txt. Packages
# that FOLDER has from before stay in it, so that a host can go back to an older version; each goes to
# the suite that its version names. A host needs SUITE.sources from it, which has the public key within,
# and nothing else. FOLDER is replaced as a whole, at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. packaging/suites.sh

key='' url=https://packages.example/ledgermq output=dist/apt packages=()
while [ $# != 0 ]; do
    case $1 in
        --key) key=$2 && shift 2 ;;
        --url) url=${2%/} && shift 2 ;;
        --output) output=$2 && shift 2 ;;
        -*) echo "make-apt-repo: not known: $1" >&2 && exit 1 ;;
        *) packages+=("$(realpath "$1")") && shift ;;
    esac
done

say() { printf 'make-apt-repo: %s\n' "$*" >&2; }

check_key() {
    [ -n "$key" ] || { say 'no --key: a repository is signed'; exit 1; }
    gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 ||
        { say "gpg has no secret key of $key"; exit 1; }
}

aptly_here() {
    aptly -config="$scratch/aptly.conf" "$@" >"$scratch/log" 2>&1 ||
        { say "aptly $*" && cat "$scratch/log" >&2 && exit 1; }
}

publish() {
    local suite=$1 package own
    shift
    aptly_here repo create -component=main -distribution="$suite" "$suite"
    for package in "$@"; do
        own=$(suite_of "$package")
        [ "$own" != "$suite" ] || aptly_here repo add "$suite" "$package"
    done
    aptly_here publish repo -batch -gpg-key="$key" -origin=LedgerMQ -label=LedgerMQ \
        -architectures="$(suite_field "$suite" architectures)" -acquire-by-hash -skip-contents \
        -skip-bz2 "$suite" filesystem:out:
}

# What a host needs to know, in one file: where it is, and by which key it is signed.
sources_file() {
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By:\n' "$url" "$1"
    sed 's/^$/./; s/^/ /' "$scratch/new/ledgermq.asc"
}

main() {
    local package suite
    packaging/install-tools.sh repository
    check_key
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$scratch'" EXIT
    umask 022
    if [ ${#packages[@]} = 0 ]; then
        packaging/make-deb.sh --suite all --arch all --output "$scratch/built" >&2
        packages=("$scratch"/built/*.deb)
    fi
    for package in "${packages[@]}"; do suite_of "$package" >/dev/null; done
    while IFS= read -r -d '' package; do
        packages+=("$package")
    done < <(find "$output" -name '*.deb' -print0 2>/dev/null)
    printf '{"rootDir": "%s", "FileSystemPublishEndpoints": {"out": {"rootDir": "%s"}}}\n' \
        "$scratch/aptly" "$scratch/new" >"$scratch/aptly.conf"
    for suite in $(suite_names); do
        publish "$suite" "${packages[@]}"
    done
    gpg --batch --armor --export-options export-minimal --export "$key" >"$scratch/new/ledgermq.asc"
    for suite in $(suite_names); do sources_file "$suite" >"$scratch/new/$suite.sources"; done
    mkdir -p "$(dirname "$output")"
    rm -rf "$output.new" "$output.old"
    cp -r "$scratch/new" "$output.new"
    [ ! -e "$output" ] || mv "$output" "$output.old"
    mv "$output.new" "$output"
    rm -rf "$output.old"
    realpath "$output"
}

main
