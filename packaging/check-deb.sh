#!/usr/bin/env bash
# Builds packages twice, in folders, time zones, languages and masks that differ: each has to be the same
# bytes, and the lintian of its suite must have nothing to say about it.
#
#   check-deb.sh [--built DIR] [--suite SUITE] [--arch ARCH]     the others as make-deb.sh
#
# With --built those in DIR, as a release has them, are the first of the two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. packaging/suites.sh

readonly work=$PWD/build/check-deb
rm -rf "$work"
mkdir -p "$work/one"
first=''
if [ "${1:-}" = --built ]; then
    first=$(realpath "$2")
    shift 2
else
    packaging/make-deb.sh "$@" --output "$work/one"
fi
(
    umask 077
    TZ=Asia/Tokyo LANG=C packaging/make-deb.sh "$@" --output "$work/two" \
        --within /srv/a/longer/path/to/build-in
)
if [ -n "$first" ]; then
    for built in "$work"/two/*.deb; do
        cp "$first/${built##*/}" "$work/one/"
    done
fi
(cd "$work" && sha256sum ./*/*.deb)
for built in "$work"/one/*.deb; do
    cmp "$built" "$work/two/${built##*/}"
    suite=$(suite_of "$built")
    # Overrides are in packaging/debian/ledgermq.lintian-overrides, each with its reason.
    in_root "$suite" "upload $built /srv/${built##*/}" \
        "chroot \"\$1\" lintian --allow-root --fail-on error,warning /srv/${built##*/}"
    echo "check-deb: ${built##*/}: the same bytes, and lintian is content"
done
