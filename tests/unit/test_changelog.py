"""What a release makes of the fragments in changelog.d/."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_documents import LINE_LENGTH_MAX

ROOT = Path(__file__).parents[2]
FRAGMENTS = ROOT / "changelog.d"
KINDS = ("added", "changed", "fixed", "removed")


def test_every_fragment_has_a_kind_and_says_something() -> None:
    fragments = [path for path in FRAGMENTS.glob("*.md") if path.name != "README.md"]

    assert [path.name for path in fragments if kind_of(path) not in KINDS] == []
    assert [path.name for path in fragments if not path.read_text().strip()] == []


@pytest.mark.slow
def test_a_release_tells_every_fragment_and_what_was_released_before(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(FRAGMENTS, tmp_path / FRAGMENTS.name)
    added = tmp_path / FRAGMENTS.name / "zz-last.fixed.md"
    added.write_text(
        "A fragment that is\nseen ([here](../docs/testing.md)).\n" + "Much is said. " * 9
    )
    texts = [path.read_text() for path in added.parent.glob("*.*.md") if path.name != "README.md"]
    before = (tmp_path / "CHANGELOG.md").read_text()

    subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "99.1.0",
         "--date", "2030-01-02", "--dir", str(tmp_path)],
        check=True, capture_output=True,
    )  # fmt: skip

    told = (tmp_path / "CHANGELOG.md").read_text()
    assert "\n## 99.1.0 (2030-01-02)\n\n### " in told
    assert [text for text in texts if words(text) not in words(told)] == []
    assert "- A fragment that is seen ([here](docs/testing.md)). Much is said. " in told
    # As all documents have it, beside the mark that the text has in the list.
    assert max(map(len, told.splitlines())) <= LINE_LENGTH_MAX
    for line in before.splitlines():
        assert line in told.splitlines()
    assert sorted(path.name for path in added.parent.iterdir()) == ["README.md", "release.md.jinja"]


def kind_of(path: Path) -> str:
    return path.name.removesuffix(".md").rpartition(".")[2]


def words(text: str) -> str:
    """A text on one line, with its links as they are seen from the checkout."""
    return re.sub(r"\s+", " ", text.replace("](../", "](")).strip()
