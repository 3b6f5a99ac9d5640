# Sourced from the root of the checkout: what is known of the suites that packages are built for
# (suites.txt), and roots of them. A root is a tar file with all that builds and looks at a package;
# it is kept, and is unpacked anew for each command. Whoever is not root needs the package uidmap.
# shellcheck shell=bash
. packaging/steps.sh

readonly suite_roots=${XDG_CACHE_HOME:-$HOME/.cache}/ledgermq-packages
readonly suite_packages=build-essential,debhelper,lintian,python3-dev,python3-venv,unzip
# What makes programs of another architecture, and what they are made with.
readonly cross_packages=gcc-aarch64-linux-gnu,libc6-dev:arm64,libpython3-dev:arm64

# Architectures that some suite has.
readonly all_architectures='amd64 arm64'

suite_names() { sed -n 's/^\([a-z]*\) .*/\1/p' packaging/suites.txt; }

# suite_field SUITE suffix|python|architectures
suite_field() {
    local name suffix python architectures title
    while read -r name suffix python architectures title; do
        [ "$name" = "$1" ] || continue
        echo "${!2}"
        return
    done <packaging/suites.txt
    echo "not one of packaging/suites.txt: $1" >&2
    return 1
}

# has_architecture SUITE ARCHITECTURE: whether packages are built for it.
has_architecture() { [[ ,$(suite_field "$1" architectures), == *",$2,"* ]]; }

# Which suite the package in a file is for: its version says so.
suite_of() {
    local version suite
    version=$(dpkg-deb --field "$1" Version)
    for suite in $(suite_names); do
        [[ $version != *"$(suite_field "$suite" suffix)" ]] || { echo "$suite" && return; }
    done
    echo "$1 is of no suite of packaging/suites.txt: $version" >&2
    return 1
}

# The suite of this machine, or the first one where packages are built for none such.
own_suite() {
    local own
    own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    suite_names | grep -x "$own" || suite_names | head -n 1
}

# Words for pip that have it take the wheels of a suite and an architecture, whatever runs pip.
pip_target() {
    local machine
    case $2 in
        amd64) machine=x86_64 ;;
        arm64) machine=aarch64 ;;
    esac
    echo --implementation cp --python-version "$(suite_field "$1" python)"
    # The oldest of these suites has the C library 2.36.
    printf -- '--platform %s_'"$machine"'\n' manylinux_2_{17,24,26,27,28,31,34} manylinux2014 linux
}

# Where packages of a suite are from: for one of Debian where this machine has its own from, for one of
# Ubuntu the release as it came out, which every host of it has. Its updates would bring another compiler
# each month, and were seen to differ between architectures.
suite_sources() {
    local file keys
    if [[ $(suite_field "$1" suffix) != *deb* ]]; then
        keys=$(ubuntu_keys) || return
        echo "deb [signed-by=$keys] http://archive.ubuntu.com/ubuntu $1 main universe"
        return
    fi
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        if grep -qs 'bookworm\|trixie' "$file"; then
            sed "s/bookworm\|trixie/$1/g" "$file"
            return
        fi
    done
}

# Prints the file of the keys that Ubuntu's archive is signed by. Debian 12 has no package of them: what
# Debian 13 has is unpacked, and kept. apt reads it as a user of its own, for whom root's home is shut.
ubuntu_keys() {
    local own=/usr/share/keyrings/ubuntu-archive-keyring.gpg kept=$suite_roots
    [ ! -e "$own" ] || { echo "$own" && return; }
    [ "$(id -u)" != 0 ] || kept=/var/cache/ledgermq-packages
    kept+=/${own##*/}
    if [ ! -e "$kept" ]; then
        install -d -m 755 "${kept%/*}"
        suite_sources trixie |
            mmdebstrap --quiet --variant=extract --include=ubuntu-archive-keyring trixie - - |
            tar -xO ".$own" >"$kept.$$" || { rm -f "$kept.$$"; return 1; }
        chmod 644 "$kept.$$"
        mv "$kept.$$" "$kept"
    fi
    echo "$kept"
}

# Prints the tar file of a root for SUITE, which is made at the first time.
suite_root() {
    local suite=$1 packages=$suite_packages sources root fresh words
    [[ $(suite_field "$suite" architectures) != *arm64* ]] || packages+=,$cross_packages
    sources=$(suite_sources "$suite") || return
    root=$suite_roots/$suite-$(sha256sum <<<"$packages $sources" | cut -c 1-16).tar
    fresh=$suite_roots/fresh-$suite.tar
    mkdir -p "$suite_roots"
    exec 9>"$suite_roots/$suite.lock"
    flock 9
    if [ ! -e "$root" ]; then
        words=(--quiet --variant=minbase "--include=$packages"
            "--architectures=$(suite_field "$suite" architectures)"
            '--aptopt=Acquire::Languages "none"' '--dpkgopt=path-exclude=/usr/share/locale/*'
            '--dpkgopt=path-exclude=/usr/share/doc/*')
        step "making a root of $suite: $root" \
            mmdebstrap "${words[@]}" "$suite" "$fresh" - <<<"$sources" >&2 || return
        if [ "$(id -u)" != 0 ]; then
            # Cannot unpack devices, and is given those of the machine.
            mmtarfilter '--path-exclude=/dev/*' <"$fresh" >"$fresh.filtered" || return
            mv "$fresh.filtered" "$fresh"
        fi
        mv "$fresh" "$root" || return
    fi
    exec 9>&-
    echo "$root"
}

# in_root SUITE HOOK...: unpacks the root, does what each hook of mmdebstrap says, and removes it.
in_root() {
    local suite=$1 root hook words=() enter=() unpack
    shift
    root=$(suite_root "$suite") || return
    unpack="tar-in $root /"
    for hook in "$@"; do
        words+=("--customize-hook=$hook")
    done
    if [ "$(id -u)" = 0 ]; then
        # Mounts of root are seen by nobody else, and end with the command however that ends.
        enter=(unshare --mount --propagation private)
        # Without a pipe: tar stops reading at the end of the archive, and where zeros behind that fill
        # more than the record it stands in, tar-in dies of writing them, now and then.
        unpack="tar --extract --numeric-owner --directory=\"\$1\" --file=$root"
        unpack+=" --xattrs --xattrs-include='*'"
    fi
    "${enter[@]}" mmdebstrap --quiet --variant=custom --format=null --skip=setup,update,cleanup \
        "--setup-hook=$unpack" "${words[@]}" "$suite" /dev/null </dev/null
}
