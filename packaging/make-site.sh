#!/usr/bin/env bash
# Builds the documentation's site as the archive that the console brings to browsers, and prints where it
# is: build/site/site.zip. What builds it is fetched once, into build/site-tools, in the versions of
# constraints.txt; the build itself fetches nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. packaging/steps.sh

readonly folder=$PWD/build/site-tools
stamp=$(cat packaging/constraints.txt distributions/lab/site.txt distributions/*/server.txt | sha256sum)
if [ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$folder"
    "${PYTHON:-python3}" -m venv "$folder"
    step 'fetching what builds the documentation' "$folder/bin/python" -m pip install --quiet \
        --disable-pip-version-check --no-compile --constraint packaging/constraints.txt \
        --requirement distributions/lab/site.txt --requirement distributions/node/server.txt \
        --requirement distributions/web/server.txt pyzmq >&2
    echo "$stamp" >"$folder/stamp"
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
# The reference is read from the modules themselves, of this checkout.
step 'building the documentation' env PYTHONPATH="$PWD" PYTHONHASHSEED=0 PYTHONUTF8=1 \
    "$folder/bin/python" \
    packaging/documentation_site.py build/site >&2
echo build/site/site.zip
