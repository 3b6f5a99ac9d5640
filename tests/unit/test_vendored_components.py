"""``packaging/vendored.toml``: files of others in the tree, and in the list of components."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import tomli

ROOT = Path(__file__).parents[2]
STATIC = "ledgermq/observer/console/static"
OURS = {"README.md", "console.css", "console.js", "mark.svg"}
ROWS: list[dict[str, Any]] = tomli.loads((ROOT / "packaging" / "vendored.toml").read_text())[
    "component"
]
LIST = {
    "metadata": {"component": {"bom-ref": "root-component", "name": "ledgermq"}},
    "components": [{"bom-ref": "rich==1", "name": "rich", "version": "1"}],
    "dependencies": [
        {"ref": "rich==1"},
        {"ref": "root-component", "dependsOn": ["rich==1"]},
    ],
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The program, the table, and the files that it names."""
    names = ["packaging/vendored.toml", "packaging/vendored_components.py"]
    for name in [*names, *(name for row in ROWS for name in row["sha256"])]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def add(checkout: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """What the program says, and the list behind it."""
    path = checkout / "list.json"
    path.write_text(json.dumps(LIST))
    program = checkout / "packaging" / "vendored_components.py"
    done = subprocess.run(
        [sys.executable, program, path], capture_output=True, text=True, check=False
    )
    return done, json.loads(path.read_text())


def test_each_vendored_file_is_named_and_nothing_of_ours() -> None:
    named = {name for row in ROWS for name in row["sha256"] if name.startswith(STATIC)}
    found = {path.name for path in (ROOT / STATIC).iterdir()}

    assert named == {f"{STATIC}/{name}" for name in found - OURS}


def test_the_version_is_the_one_that_the_file_itself_tells() -> None:
    (row,) = (row for row in ROWS if row["name"] == "uplot")
    head = (ROOT / STATIC / "uPlot.iife.js").read_text()[:400]
    readme = (ROOT / STATIC / "README.md").read_text()

    assert re.findall(r"\(v([\d.]+)\)", head) == [row["version"]]
    assert f"uplot {row['version']}" in readme
    assert row["purl"].endswith(f"@{row['version']}")


def test_the_package_tells_the_licence_of_each_vendored_file() -> None:
    stanzas = (ROOT / "packaging" / "debian" / "copyright").read_text().split("\n\n")
    patterns = {
        pattern
        for stanza in stanzas
        if stanza.startswith("Files:")
        for pattern in stanza.partition("Copyright:")[0].removeprefix("Files:").split()
    } - {"*"}
    without = [
        name
        for row in ROWS
        for name in row["sha256"]
        if not any(fnmatch(name, pattern) for pattern in patterns)
    ]

    assert without == []


def test_the_list_of_components_gets_version_licence_and_digests(checkout: Path) -> None:
    done, bom = add(checkout)
    library, *others = [one for one in bom["components"] if one["name"] == "uplot"]
    digests = {one["name"]: one["hashes"][0] for one in library["components"]}
    script = f"{STATIC}/uPlot.iife.js"

    assert (done.returncode, done.stderr, others) == (0, "", [])
    assert (library["version"], library["purl"]) == ("1.6.32", "pkg:npm/uplot@1.6.32")
    assert library["licenses"][0]["license"]["id"] == "MIT"
    assert digests.keys() == {f"{STATIC}/uPlot.{end}" for end in ("LICENSE", "css", "iife.js")}
    assert digests[script] == {
        "alg": "SHA-256",
        "content": hashlib.sha256((ROOT / script).read_bytes()).hexdigest(),
    }
    # What was there stays, and the root needs both.
    assert bom["components"][0] == LIST["components"][0]
    needs = {one["ref"]: one.get("dependsOn", []) for one in bom["dependencies"]}
    assert needs["root-component"] == sorted(one["bom-ref"] for one in bom["components"])
    assert library["bom-ref"] in needs


def test_a_file_that_is_not_what_the_table_says_is_refused(checkout: Path) -> None:
    path = checkout / STATIC / "uPlot.iife.js"
    with path.open("ab") as file:
        file.write(b"\n")
    changed, first = add(checkout)
    path.unlink()
    gone, second = add(checkout)

    assert (changed.returncode, gone.returncode) == (1, 1)
    assert f"{STATIC}/uPlot.iife.js is of SHA-256" in changed.stderr
    assert f"{STATIC}/uPlot.iife.js: No such file" in gone.stderr
    assert first == second == LIST
