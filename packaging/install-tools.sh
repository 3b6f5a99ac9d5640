#!/usr/bin/env bash
# Debian's packages that building and booting the package takes: installs what is missing as root, or
# says what to install.
#
#   install-tools.sh deb     what makes roots, in which packages are built
#   install-tools.sh boot    these two, and what boots a Debian root
#   install-tools.sh repository  what makes and signs a repository of packages
#   install-tools.sh bare    the first two, and what enters a bare root, also one of arm64
#   install-tools.sh browser chromium, for the tests of pages
#   install-tools.sh metrics promtool, which checks metrics (Debian's prometheus)
#   install-tools.sh postgresql  a server of databases, for the tests of tables; none is started
#   install-tools.sh s3      versitygw, an S3 server, for the tests of archives; by Go 1.25 or later
#   install-tools.sh gs      fake-gcs-server, which speaks as Google's store; by Go, too
#   install-tools.sh abfs    Azurite, which speaks as Azure's store, to ~/.cache/ledgermq-azurite; by npm
#   install-tools.sh power   a compiler and FUSE, for the tests of power failures
set -euo pipefail

# Builds the program $1, where it is not on the path, from the Go module $2, and ends this one.
go_install() {
    ! command -v "$1" >/dev/null || exit 0
    command -v go >/dev/null ||
        { echo "install-tools: $1 needs Go: https://go.dev/dl" >&2 && exit 1; }
    [ "$(id -u)" != 0 ] || export GOBIN=/usr/local/bin
    echo "install-tools: go install $1 to ${GOBIN:-$(go env GOPATH)/bin}" >&2
    exec go install "$2"
}

packages=(dpkg-dev mmdebstrap python3-venv)
case ${1:-deb} in
    deb) ;;
    boot) packages+=(aptly gpg gpg-agent iproute2 systemd-container util-linux) ;;
    repository) packages=(aptly gpg gpg-agent) ;;
    bare) packages+=(aptly gpg gpg-agent qemu-user-static util-linux) ;;
    browser) packages=(chromium) ;;
    metrics) packages=(prometheus) ;;
    postgresql) packages=(postgresql) ;;
    s3) go_install versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0 ;;
    gs) go_install fake-gcs-server github.com/fsouza/fake-gcs-server@v1.56.1 ;;
    abfs)
        folder=${XDG_CACHE_HOME:-$HOME/.cache}/ledgermq-azurite
        [ ! -x "$folder/node_modules/.bin/azurite-blob" ] || exit 0
        command -v npm >/dev/null || { echo "install-tools: Azurite needs npm (Node)" >&2 && exit 1; }
        echo "install-tools: npm install azurite to $folder" >&2
        mkdir -p "$folder"
        exec npm install --prefix "$folder" --no-fund --no-audit --loglevel=error azurite@3.35.0
        ;;
    power) packages=(fuse3 g++ libfuse3-dev pkg-config) ;;
    *) echo "install-tools: not known: $1; it takes deb, repository, boot, bare, browser, metrics, postgresql, s3, gs, abfs or power" >&2 && exit 1 ;;
esac

missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
        missing+=("$package")
done
[ ${#missing[@]} != 0 ] || exit 0
command="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" != 0 ]; then
    echo "install-tools: missing: ${missing[*]}; install with: sudo $command" >&2
    exit 1
fi
echo "install-tools: $command" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq </dev/null
if [ "${1:-}" = postgresql ]; then
    # Tests make servers of their own; Debian's package would make and start one beside them.
    apt-get install -y --no-install-recommends -qq postgresql-common </dev/null >/dev/null
    sed -i 's/^#\? *create_main_cluster *=.*/create_main_cluster = false/' \
        /etc/postgresql-common/createcluster.conf
fi
$command -qq -o Dpkg::Use-Pty=0 </dev/null >/dev/null
