"""What the documents point to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def documents() -> list[str]:
    folders = ("docs", "changelog.d", "bench")
    found = [
        *ROOT.glob("*.md"),
        *(path for name in folders for path in (ROOT / name).rglob("*.md")),
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


@pytest.mark.parametrize("name", documents())
def test_every_link_leads_to_a_file(name: str) -> None:
    document = ROOT / name
    links = _LINK.findall(document.read_text())
    missing = [
        link
        for link in links
        if "://" not in link and not (document.parent / link).resolve().exists()
    ]

    assert missing == []


def test_every_make_target_that_is_told_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    told = {
        target
        for name in documents()
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / name).read_text(), re.M)
    }

    assert told - targets == set()


def test_the_operators_index_leads_to_every_document() -> None:
    folder = ROOT / "docs" / "operating"
    links = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (folder / "README.md").read_text()))

    assert links == {path.name for path in folder.glob("*.md")} - {"README.md"}
