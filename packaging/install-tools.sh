#!/usr/bin/env bash
# Debian's packages that building and booting the package takes: installs what is missing as root, or
# says what to install.
#
#   install-tools.sh deb     debhelper, lintian and a compiler
#   install-tools.sh boot    these, and what boots a Debian root
#   install-tools.sh bare    what makes a bare root
#   install-tools.sh browser chromium, for the tests of pages
#   install-tools.sh power   a compiler and FUSE, for the tests of power failures
set -euo pipefail

packages=(debhelper gcc libc6-dev lintian python3-dev python3-venv unzip)
case ${1:-deb} in
    deb) ;;
    boot) packages+=(iproute2 mmdebstrap systemd-container util-linux) ;;
    bare) packages=(mmdebstrap util-linux) ;;
    browser) packages=(chromium) ;;
    power) packages=(fuse3 g++ libfuse3-dev pkg-config) ;;
    *) echo "install-tools: not known: $1; it takes deb, boot, bare, browser or power" >&2 && exit 1 ;;
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
$command -qq -o Dpkg::Use-Pty=0 </dev/null >/dev/null
