#!/usr/bin/env bash
# Writes the list of components (SBOM, CycloneDX) of what a node brings along, and prints where it is:
# the libraries of the versions in packaging/constraints.txt, which the Debian package has too (but for
# Cython, which only kernels that are not compiled need), with their licenses and what needs what; and what
# is in the tree as files of others (packaging/vendored.toml).
#
#   make-sbom.sh FOLDER       the folder has the wheel of this version for any machine
#
# C libraries within wheels (libzmq and libsodium in pyzmq's, OpenBLAS in numpy's) are part of their
# component.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly folder=$1
tools=$(packaging/release-tools.sh)
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' ledgermq/__init__.py)
scratch=$(mktemp -d)
# shellcheck disable=SC2064
trap "rm -rf '$scratch'" EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH

"$tools/python" -m venv --without-pip "$scratch/node"
"$tools/python" -m pip --python "$scratch/node/bin/python" install --quiet --no-compile \
    --disable-pip-version-check --constraint packaging/constraints.txt \
    --find-links "$folder" "$folder/ledgermq-$version-py3-none-any.whl[server,compression]" >&2
# The root of the list, and what it asks for by name.
"$tools/python" - "$version" >"$scratch/pyproject.toml" <<'PROGRAM'
import json
import pathlib
import sys
import tomllib

written = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
project = written["project"]
files = written["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
needed = [
    line
    for extra in ("server", "compression")
    for name in files[extra]["file"]
    for line in pathlib.Path(name).read_text().splitlines()
    if line and not line.startswith("#")
]
print("[project]")
for key in ("name", "description", "license"):
    print(f"{key} = {json.dumps(project[key])}")
print(f"version = {json.dumps(sys.argv[1])}")
print("dependencies =", project["dependencies"] + needed)
PROGRAM
"$tools/cyclonedx-py" environment --pyproject "$scratch/pyproject.toml" --output-reproducible \
    --output-file "$scratch/list.json" "$scratch/node/bin/python"
"$tools/python" packaging/vendored_components.py "$scratch/list.json"
"$tools/python" - "$scratch/list.json" >&2 <<'PROGRAM'
import json
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = pathlib.Path(sys.argv[1]).read_text()
version = SchemaVersion.from_version(json.loads(text)["specVersion"])
if error := JsonStrictValidator(version).validate_str(text):
    raise SystemExit(f"make-sbom: no list of CycloneDX {version.to_version()}: {error}")
PROGRAM
mv "$scratch/list.json" "$folder/ledgermq-$version.cdx.json"
echo "$folder/ledgermq-$version.cdx.json"
