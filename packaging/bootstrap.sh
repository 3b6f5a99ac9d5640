#!/usr/bin/env bash
# Makes .venv with everything that the checkout needs, and compiles the kernels in place.
# Quick when nothing changed. Without a compiler the kernels run as plain Python.
#
#   bootstrap.sh                 what tests and checks need, with Java and PySpark
#   bootstrap.sh run             what a node and the command line need: a tenth of that
#
#   PYTHON=/path/to/python3.13   use this interpreter
#   LEDGERMQ_PURE=1              do not compile the kernels
#   LEDGERMQ_WITHOUT_SPARK=1     no Java and no PySpark; the tests that need them are left out, as
#                                they are where there is no Java and it cannot be installed
#   LEDGERMQ_BROWSER=1           what drives a browser, too, for the tests of pages
#   LEDGERMQ_ANSIBLE=1           Ansible, too, for the tests of packaging/ansible
#   LEDGERMQ_SITE=1              what make site builds the documentation with, too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. packaging/steps.sh

readonly venv=.venv
installing=
optimize=-O3
all=server,grpc,rocksdb,test,check
[ "${LEDGERMQ_BROWSER:-}" != 1 ] || all+=,browser
[ "${LEDGERMQ_ANSIBLE:-}" != 1 ] || all+=,ansible
[ "${LEDGERMQ_SITE:-}" != 1 ] || all+=,site
# What reads and writes tables comes with Spark, whose jobs make them.
readonly spark=,spark,buckets-google,buckets-azure,iceberg,iceberg-postgresql,readers
[ "${LEDGERMQ_WITHOUT_SPARK:-}" = 1 ] || all+=$spark
case ${1:-all} in
    all) extras=$all ;;
    # Compiled in half the time: what is measured and shipped is made by the others.
    run) extras=server optimize=-O1 ;;
    *) echo "bootstrap: not known: $1; it takes run, or nothing" >&2 && exit 1 ;;
esac

say() { printf 'bootstrap: %s\n' "$*" >&2; }

# The first interpreter that is new enough and can make a virtual environment.
find_python() {
    local candidate known='/usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11'
    for candidate in ${PYTHON:-$known}; do
        if "$candidate" - 2>/dev/null <<'PY'; then
import sys
import ensurepip, venv
sys.exit(sys.version_info < (3, 11))
PY
            command -v "$candidate"
            return
        fi
    done
    return 1
}

can_compile() {
    local include
    include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    command -v "${CC:-cc}" >/dev/null && [ -e "$include/Python.h" ]
}

has_java() { [ -n "${JAVA_HOME:-}" ] || command -v java >/dev/null; }

wants_kernels() { [ "${LEDGERMQ_PURE:-}" != 1 ]; }

# Debian's packages that are missing, as far as the checkout needs them: without what compiles.
missing_packages() {
    command -v make >/dev/null || echo make
    [[ $extras != *spark* ]] || has_java || echo default-jre-headless
    find_python >/dev/null || echo python3 python3-venv
}

# What compiles the kernels, as far as it is missing.
missing_compiler() {
    local python
    wants_kernels || return 0
    if ! python=$(find_python); then
        echo gcc libc6-dev libpython3-dev
    elif ! can_compile "$python"; then
        echo gcc libc6-dev
        # Headers of another interpreter than Debian's are not Debian's to install.
        [[ $python != /usr/bin/* ]] || echo libpython3-dev
    fi
}

readonly apt_install='apt-get install -y --no-install-recommends'

# install_packages TEXT PACKAGE...
install_packages() {
    local words="$apt_install ${*:2}"
    say "$words"
    DEBIAN_FRONTEND=noninteractive step "$1" $words -qq -o Dpkg::Use-Pty=0 </dev/null >/dev/null ||
        say "missing: ${*:2}; install with: sudo $words"
}

# A compiler is installed beside all that needs none, which is most of the way: $installing does that.
install_missing() {
    local packages compiler all
    read -r -d '' -a packages < <(missing_packages && printf '\0')
    read -r -d '' -a compiler < <(missing_compiler && printf '\0')
    all=("${packages[@]}" "${compiler[@]}")
    [ ${#all[@]} != 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "missing: ${all[*]}; install with: sudo $apt_install ${all[*]}"
        return
    fi
    step 'fetching the lists of packages' apt-get update -qq </dev/null || true
    [ ${#packages[@]} = 0 ] || install_packages 'installing packages' "${packages[@]}"
    [ ${#compiler[@]} != 0 ] || return 0
    STEP_UNSEEN=1 install_packages 'installing a compiler' "${compiler[@]}" &
    installing=$!
}

# Spark's libraries are of no use without Java.
leave_spark_out_without_java() {
    [[ $all == *spark* ]] && ! has_java || return 0
    [[ $extras != *spark* ]] ||
        say "no Java: PySpark is left out, and so are the tests that need it"
    all=${all%"$spark"} extras=${extras%"$spark"}
}

digest() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

# True when the stamp $1 says that this very thing ($2) was done before.
is_done() { [ -e "$venv/$1" ] && [ "$(cat "$venv/$1")" = "$2" ]; }

make_venv() {
    local python=$1
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        rm -rf "$venv"
        step "making $venv with $python" "$python" -m venv "$venv"
    fi
}

# Also when only a kernel has changed, the kernels are compiled.
install_project() {
    local inputs compiling
    inputs=$(digest pyproject.toml setup.py distributions/*/*.txt packaging/constraints.txt)
    # Who has all has what a node needs, too.
    if is_done installed "$PWD $all $inputs" || is_done installed "$PWD $extras $inputs"; then
        await_compiler
        compile_kernels
        return
    fi
    # PySpark is built of 2.5 GB of files, more than fit where /tmp is kept in memory.
    local -x TMPDIR="$PWD/$venv/tmp"
    mkdir -p "$TMPDIR"
    # Python compiles what is imported when it is; most of the libraries' modules never are.
    step 'installing what builds the project' "$venv/bin/python" -m pip install --quiet \
        --no-compile --constraint packaging/constraints.txt setuptools wheel cython
    # They are compiled beside the rest, which waits for disks and registries.
    STEP_UNSEEN=1 compile_once_there_is_a_compiler &
    compiling=$!
    install_libraries || { [ -n "$installing" ] && await_compiler && install_libraries; }
    step 'waiting for the kernels' wait "$compiling"
    rm -rf "$TMPDIR"
    echo "$PWD $extras $inputs" >"$venv/installed"
}

# A library without a wheel for this machine needs the compiler, too.
install_libraries() {
    step "installing the project and its libraries into $venv" env LEDGERMQ_PURE=1 "$venv/bin/python" -m pip \
        install --quiet --no-compile --use-pep517 --no-build-isolation \
        --constraint packaging/constraints.txt --editable ".[$extras]"
}

# Also by what is no parent of that, and could not wait for it otherwise.
await_compiler() { [ -z "$installing" ] || tail --pid="$installing" -s 0.2 -f /dev/null; }

# The editable install's finder is asked last: a program in a folder that has a checkout named ledgermq
# would import that folder, as a package without modules.
add_sources_to_path() {
    local packages
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$PWD" >"$packages/ledgermq-checkout.pth"
}

# Cython needs no compiler to say in C what a kernel does.
compile_once_there_is_a_compiler() {
    if [ -n "$installing" ]; then
        mkdir -p build
        to_log build/kernels-c.log "$venv/bin/python" -c 'import setup; setup.kernels()' || true
        await_compiler
    fi
    compile_kernels
}

compile_kernels() {
    local sources known tag kernel flags
    tag=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    if ! wants_kernels || ! can_compile "$venv/bin/python"; then
        # A compiled kernel of an earlier run would win over the plain module.
        rm -f ledgermq/formats/kernels/_*"$tag" "$venv/compiled"
        ! wants_kernels || say "no C compiler or no Python.h: the kernels run as plain Python"
        return 0
    fi
    sources=$(digest setup.py ledgermq/formats/kernels/_[a-z]*.p*)
    for known in -O3 "$optimize"; do
        is_done compiled "$tag $known $sources" && compgen -G "ledgermq/formats/kernels/_*$tag" >/dev/null &&
            return
    done
    rm -f ledgermq/formats/kernels/_*"$tag"
    mkdir -p build
    # Debian's Python asks for debugging symbols, which take a quarter of the time. What it asks for
    # besides, as -fwrapv, stays: the variable replaces all of it.
    flags=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("CFLAGS"))')
    step 'compiling the kernels, see build/kernels.log' to_log build/kernels.log \
        env CFLAGS="${CFLAGS:-$flags} -g0" LEDGERMQ_OPTIMIZE="$optimize" "$venv/bin/python" setup.py build_ext --inplace
    for kernel in ledgermq/formats/kernels/_[a-z]*.py; do
        [ -e "${kernel%.py}$tag" ] || say "$kernel runs as plain Python; see build/kernels.log"
    done
    echo "$tag $optimize $sources" >"$venv/compiled"
}

main() {
    local python
    install_missing
    if ! python=$(find_python); then
        say "no Python 3.11 or newer with the module venv"
        exit 1
    fi
    leave_spark_out_without_java
    make_venv "$python"
    add_sources_to_path
    install_project
}

main
