#!/usr/bin/env bash
# Builds the package twice, in folders, time zones, languages and masks that differ: it has to be the
# same bytes, and lintian must have nothing to say about it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly work=$PWD/build/check-deb
rm -rf "$work"
mkdir -p "$work"
packaging/make-deb.sh --output "$work/one"
(
    umask 077
    TZ=Asia/Tokyo LANG=C LC_ALL=C packaging/make-deb.sh --output "$work/two" \
        --scratch "$work/a/longer/path/to/build-in"
)
sha256sum "$work"/*/*.deb
cmp "$work"/one/*.deb "$work"/two/*.deb
# Overrides are in packaging/debian/ledgermq.lintian-overrides, each with its reason.
lintian --allow-root --fail-on error,warning "$work"/one/*.deb
echo 'check-deb: the same bytes, and lintian is content'
