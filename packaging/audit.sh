#!/bin/sh
# Whether a library that is brought along has a vulnerability that PyPI's data knows. Ends with 1 if one
# has, and says so where the data cannot be reached: then nothing was looked at. What could not be looked at
# is named with the reason: our own package, which PyPI does not have, and what the data says nothing of.
set -eu
cd "$(dirname "$0")/.."
tools=build/audit
if [ ! -x "$tools/bin/pip-audit" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet 'pip-audit>=2.9,<3'
fi
for folder in .venv/lib/python3*/site-packages; do
    # Its status says that something was found, and that something failed: the report tells which.
    "$tools/bin/pip-audit" --path "$folder" --format json --progress-spinner off \
        >"$tools/report.json" 2>"$tools/errors" || true
    python3 - "$tools/report.json" "$tools/errors" <<'PROGRAM'
import json
import sys

text = open(sys.argv[1]).read()
if not text.strip():
    print("audit: nothing was looked at:", open(sys.argv[2]).read().strip()[-300:])
    raise SystemExit(0)
rows = json.loads(text)["dependencies"]
seen = [row for row in rows if "vulns" in row]
found = [(row["name"], row["version"], one["id"]) for row in seen for one in row["vulns"]]
if not seen:
    print(f"audit: the data is not reachable: none of {len(rows)} libraries was looked at")
else:
    print(f"audit: {len(seen)} of {len(rows)} libraries, {len(found)} vulnerabilities")
for row in rows:
    if seen and "vulns" not in row:
        reason = row.get("skip_reason", "no reason is told")
        print(f"audit: not looked at: {row['name']}: {reason}")
for name, version, identity in found:
    print(f"audit: {name} {version}: {identity}")
raise SystemExit(bool(found))
PROGRAM
done
