"""What the Debian package is made from: documents that programs write, and locked libraries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement

from ledgermq.cli.main import COMMANDS
from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_file import keys_of, read_settings, tables
from tests.suite.extras import extras

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
PYTHONS = sorted(set(re.findall(r"\b3\.\d+\b", (PACKAGING / "suites.txt").read_text())))


CHANGES = """# Changes

## 1.2.3 (2030-01-02)

### Added

- **Groups**: `three` nodes
  form one. More.

- Users.

### Fixed

- A fault.

## 1.2.2 (2029-01-02)

### Added

- Older.
"""


def printed_by(script: str, *words: str) -> str:
    """What one of packaging's programs prints."""
    done = subprocess.run(
        [sys.executable, str(PACKAGING / script), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str) -> dict[str, str]:
    """Versions by library of one of the locked files; each has digests."""
    text = (PACKAGING / "locked" / f"{name}.txt").read_text()
    found = re.findall(r"^([\w.-]+)==(\S+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.M)
    assert len(found) == len(re.findall(r"^\w", text, re.M))
    return {normal(library): version for library, version in found}


@pytest.mark.slow
def test_every_command_gets_a_manual_page_that_has_its_verbs(tmp_path: Path) -> None:
    printed_by("man_pages.py", str(tmp_path))
    pages = {path.name: path.read_text() for path in tmp_path.iterdir()}

    assert pages.keys() == {
        "ledgermq.1", "ledgermqd.8", "ledgermq.toml.5", *(f"ledgermq-{n}.1" for n in COMMANDS)
    }  # fmt: skip
    assert '.SS "ledgermq topic create"' in pages["ledgermq-topic.1"]
    assert r"\-\-config" in pages["ledgermq-serve.1"]
    assert all(rf"ledgermq\-{name} (1)" in pages["ledgermq.1"] for name in COMMANDS)
    if groff := shutil.which("groff"):
        for path in sorted(tmp_path.iterdir()):
            done = subprocess.run(
                [groff, "-man", "-Tutf8", "-Kutf8", "-ww", "-z", path],
                capture_output=True, text=True, check=False,
            )  # fmt: skip

            assert (done.returncode, done.stderr) == (0, ""), path


def test_the_settings_file_changes_nothing_and_shows_every_default() -> None:
    sample = printed_by("settings_sample.py")
    shown = re.sub(r"^#(?=\[|[a-z_]+ = )", "", sample, flags=re.M)

    assert tomli.loads(sample) == {}
    assert read_settings(shown, name="sample") == Settings()
    for table in tables():
        for key in keys_of(getattr(Settings(), table)):
            assert re.search(rf"^#(# )?{key} (=|is not set)", sample, re.M), key


def test_the_changelog_of_the_package_tells_the_fragments() -> None:
    text = printed_by("debian_changelog.py", "1.2.3-1~deb13u1", "trixie", "0")
    fragments = len(list((ROOT / "changelog.d").glob("*.*.md")))

    assert text.startswith("ledgermq (1.2.3-1~deb13u1) trixie; urgency=medium\n")
    assert text.count("\n  * ") == fragments or not fragments
    assert text.rstrip().endswith("Thu, 01 Jan 1970 00:00:00 -0000")


def test_the_changelog_of_a_package_of_a_release_tells_the_release(tmp_path: Path) -> None:
    for name in ("debian_changelog.py", "debian/control"):
        (tmp_path / "packaging" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGING / name, tmp_path / "packaging" / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)

    program = str(tmp_path / "packaging" / "debian_changelog.py")
    text = printed_by(program, "1.2.3-1~deb12u1", "bookworm", "0")

    head, _, changes = text.partition("\n\n")
    assert head == "ledgermq (1.2.3-1~deb12u1) bookworm; urgency=medium"
    assert changes.partition("\n\n")[0].splitlines() == [
        "  [ Added ]", "  * Groups: three nodes form one.", "  * Users.",
        "  [ Fixed ]", "  * A fault.",
    ]  # fmt: skip


def test_locked_versions_are_those_that_the_checkout_is_tested_with() -> None:
    tested = dict(
        line.split("==")
        for line in (PACKAGING / "constraints.txt").read_text().split()
        if "==" in line
    )
    tested = {normal(name): version for name, version in tested.items()}

    for name in ("server", "build"):
        assert locked(name).items() <= tested.items()


def test_the_package_has_what_a_node_and_the_command_line_need() -> None:
    pytest.importorskip(
        "boto3", reason="not installed: boto3 (packaging/bootstrap.sh, where Java is)"
    )
    wanted = [*tomli.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]
    for extra in ("server", "grpc", "compression", "buckets"):
        wanted += extras()[extra]
    needed: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        parsed = Requirement(requirement)
        name = normal(parsed.name)
        # Conditions of others are for other systems, for extras, and for the Pythons of suites.
        is_wanted = parsed.marker is None or any(
            parsed.marker.evaluate({"extra": "", "python_version": version}) for version in PYTHONS
        )
        if is_wanted and name not in needed:
            needed.add(name)
            wanted += requires(name) or []

    # Its kernels are compiled; only plain ones import it.
    assert locked("server").keys() == needed - {"cython"}


def test_what_the_installed_architecture_links_to_is_installed() -> None:
    shipped = (PACKAGING / "debian" / "ledgermq.docs").read_text().split()
    pages = [ROOT / "docs" / "architecture.md", *(ROOT / "docs" / "internals").glob("*.md")]
    missing = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not any(
            (target := (page.parent / link).resolve()) == ROOT / name
            or (ROOT / name) in target.parents
            for name in shipped
        )
    ]

    assert missing == []
