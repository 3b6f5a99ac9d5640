"""The map of modules says what docstrings do, and the index of decisions what its records do."""

from __future__ import annotations

import importlib.util
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
QUESTION_WORDS = ("How", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Why")


@pytest.fixture(scope="module")
def maps() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "document_maps", ROOT / "packaging" / "document_maps.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def not_current(path: Path, text: str) -> str:
    """The first line that differs, and what to type; empty when nothing does."""
    lines = zip_longest(path.read_text().splitlines(), text.splitlines())
    for number, (old, new) in enumerate(lines, 1):
        if old != new:
            return f"line {number} of {path.name} should be {new!r}: type `make map`"
    return ""


def test_the_map_has_every_module_and_what_it_says_of_itself(
    maps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, index = tmp_path / "build" / "map.md", tmp_path / "README.md"
    index.write_text(maps.INDEX.read_text())
    monkeypatch.setattr(maps, "MAP", page)
    monkeypatch.setattr(maps, "INDEX", index)

    assert maps.main([]) == 0

    told = page.read_text()
    modules = [path for path in maps.PRODUCT.rglob("*.py") if path.name != "__init__.py"]
    missing = [
        str(path.relative_to(maps.PRODUCT))
        for path in modules
        if f"| `{path.stem}` | {maps.first_sentence(path)} |" not in told
    ]
    assert missing == []


def test_a_module_is_told_by_a_noun(maps: ModuleType) -> None:
    rows = [line for line in maps.map_text().splitlines() if line.startswith("| `")]
    riddles = [row for row in rows if row.split(" | ")[1].split()[0] in QUESTION_WORDS]

    assert riddles == [], "say what it is, in the field's own terms, and not what it answers"


def test_the_index_has_every_decision_and_its_title(maps: ModuleType) -> None:
    assert not_current(maps.INDEX, maps.index_text(maps.INDEX.read_text())) == ""


def test_the_index_says_of_every_decision_what_it_is_about(maps: ModuleType) -> None:
    assert maps.without_subject(maps.INDEX.read_text()) == []


def test_a_package_within_a_package_stands_behind_its_modules(
    maps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "PRODUCT", tmp_path)
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for path, text in {
        "outer/__init__.py": '"""All of it."""\n',
        "outer/lease.py": '"""Leases, as ``a | b``. More\nwords.\n\nAnd more.\n"""\n',
        "outer/inner/__init__.py": '"""A part."""\n',
        "outer/inner/term.py": '"""A term (v1.2) of\na node."""\n',
    }.items():
        (tmp_path / path).write_text(text)

    assert "".join(maps._sections(tmp_path / "outer")) == (
        "## outer/\n\nAll of it.\n\n| module | holds |\n|---|---|\n"
        "| `lease` | Leases, as `a \\| b`. |\n"
        "### outer/inner/\n\nA part.\n\n| module | holds |\n|---|---|\n"
        "| `term` | A term (v1.2) of a node. |\n"
    )
