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
all=server,grpc,rocksdb,test,check
[ "${LEDGERMQ_BROWSER:-}" != 1 ] || all+=,browser
[ "${LEDGERMQ_ANSIBLE:-}" != 1 ] || all+=,ansible
[ "${LEDGERMQ_SITE:-}" != 1 ] || all+=,site
# What reads and writes tables comes with Spark, whose jobs make them.
readonly spark=,spark,buckets-google,buckets-azure,iceberg,iceberg-postgresql,readers
[ "${LEDGERMQ_WITHOUT_SPARK:-}" = 1 ] || all+=$spark
case ${1:-all} in
    all) extras=$all ;;
    run) extras=server ;;
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

# Debian's packages that are missing, as far as the checkout needs them.
missing_packages() {
    local python
    command -v make >/dev/null || echo make
    [[ $extras != *spark* ]] || has_java || echo default-jre-headless
    if ! python=$(find_python); then
        echo python3 python3-venv
        ! wants_kernels || echo gcc libc6-dev libpython3-dev
    elif wants_kernels && ! can_compile "$python"; then
        echo gcc libc6-dev
        # Headers of another interpreter than Debian's are not Debian's to install.
        [[ $python != /usr/bin/* ]] || echo libpython3-dev
    fi
}

install_packages() {
    local packages=("$@") command
    command="apt-get install -y --no-install-recommends ${packages[*]}"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "$command"
        export DEBIAN_FRONTEND=noninteractive
        step 'fetching the lists of packages' apt-get update -qq </dev/null
        step 'installing packages' $command -qq -o Dpkg::Use-Pty=0 </dev/null >/dev/null && return
    fi
    say "missing: ${packages[*]}; install with: sudo $command"
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
    STEP_UNSEEN=1 compile_kernels &
    compiling=$!
    step "installing the project and its libraries into $venv" env LEDGERMQ_PURE=1 "$venv/bin/python" -m pip \
        install --quiet --no-compile --use-pep517 --no-build-isolation \
        --constraint packaging/constraints.txt --editable ".[$extras]"
    step 'waiting for the kernels' wait "$compiling"
    rm -rf "$TMPDIR"
    echo "$PWD $extras $inputs" >"$venv/installed"
}

# The editable install's finder is asked last: a program in a folder that has a checkout named ledgermq
# would import that folder, as a package without modules.
add_sources_to_path() {
    local packages
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$PWD" >"$packages/ledgermq-checkout.pth"
}

compile_kernels() {
    local stamp tag kernel flags
    tag=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    if ! wants_kernels || ! can_compile "$venv/bin/python"; then
        # A compiled kernel of an earlier run would win over the plain module.
        rm -f ledgermq/formats/kernels/_*"$tag" "$venv/compiled"
        ! wants_kernels || say "no C compiler or no Python.h: the kernels run as plain Python"
        return 0
    fi
    stamp="$tag $(digest setup.py ledgermq/formats/kernels/_[a-z]*.p*)"
    is_done compiled "$stamp" && compgen -G "ledgermq/formats/kernels/_*$tag" >/dev/null && return
    rm -f ledgermq/formats/kernels/_*"$tag"
    mkdir -p build
    # Debian's Python asks for debugging symbols, which take a quarter of the time. What it asks for
    # besides, as -fwrapv, stays: the variable replaces all of it.
    flags=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("CFLAGS"))')
    step 'compiling the kernels, see build/kernels.log' to_log build/kernels.log \
        env CFLAGS="${CFLAGS:-$flags} -g0" "$venv/bin/python" setup.py build_ext --inplace
    for kernel in ledgermq/formats/kernels/_[a-z]*.py; do
        [ -e "${kernel%.py}$tag" ] || say "$kernel runs as plain Python; see build/kernels.log"
    done
    echo "$stamp" >"$venv/compiled"
}

main() {
    local missing python
    read -r -d '' -a missing < <(missing_packages && printf '\0')
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
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
