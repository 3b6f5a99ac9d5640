"""What the documents point to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINE_LENGTH_MAX = 110
_MODULE = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_PLACE = re.compile(r"\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def documents() -> list[str]:
    folders = ("docs", "changelog.d", "bench", "distributions")
    found = [
        *ROOT.glob("*.md"),
        *(path for name in folders for path in (ROOT / name).rglob("*.md")),
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def lines_of_prose(text: str) -> list[tuple[int, str]]:
    """Numbered lines outside of code blocks and tables, whose lines cannot be broken."""
    found, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            found.append((number, line))
    return found


def places_of(document: Path) -> set[str]:
    """The names of its headings, as links have them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in _HEADING.findall(document.read_text())
    }


def test_no_line_of_prose_is_too_long() -> None:
    long = [
        f"{name}:{number}"
        for name in documents()
        for number, line in lines_of_prose((ROOT / name).read_text())
        if len(line) > LINE_LENGTH_MAX
    ]

    assert long == [], f"break these lines at {LINE_LENGTH_MAX} characters"


@pytest.mark.parametrize("name", documents())
def test_every_link_to_a_heading_leads_to_one(name: str) -> None:
    document = ROOT / name
    prose = " ".join(line.strip() for _, line in lines_of_prose(document.read_text()))
    missing = [
        f"{link}#{place}"
        for link, place in _PLACE.findall(prose)
        if "://" not in link
        and (there := document.parent / link if link else document).suffix == ".md"
        and place not in places_of(there)
    ]

    assert missing == []


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


@pytest.mark.parametrize("name", documents())
def test_every_module_that_is_named_is_there(name: str) -> None:
    named = set(_MODULE.findall((ROOT / name).read_text()))
    missing = sorted(
        module
        for module in named
        if not any((tree / module).exists() for tree in (ROOT, ROOT / "ledgermq"))
    )

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


def test_every_decision_begins_with_its_number_and_title() -> None:
    folder = ROOT / "docs" / "decisions"
    wrong = [
        f"{path.name}: {line}"
        for path in sorted(folder.glob("[0-9]*.md"))
        if not (line := path.read_text().partition("\n")[0]).startswith(f"# {path.name[:4]}: ")
    ]

    assert wrong == [], "the first line of a decision is: # 0042: Title"
