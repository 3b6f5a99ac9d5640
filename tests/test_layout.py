"""House rules that a machine can see: folders, layers and tables agree; nothing grows too big."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli

from ledgermq.cli.main import EXTRA_OF_PACKAGE
from tests.suite.extras import extras
from tests.suite.parsed import parsed

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomli.loads((ROOT / "pyproject.toml").read_text())
PRODUCT = ROOT / "ledgermq"
PACKAGES = sorted(path.name for path in PRODUCT.iterdir() if any(path.glob("*.py")))
SIMULATOR = ROOT / "tests" / "simulator"
"""No part of the product, but held to its rules of style: what it proves is read by as many."""

LINKS = ["daemon", "ipc", "raft", "store"]
"""For people, at the root: they lead into the package, and nothing imports through them."""

FOLDERS = sorted(
    path.parent.relative_to(PRODUCT)
    for package in PACKAGES
    for path in (PRODUCT / package).rglob("__init__.py")
)
"""Packages, and the folders in them."""

DOUBLED: set[str] = set()
"""Public class names that stand twice: it only ever gets smaller."""

IMPORTED_AS = {
    "PyYAML": "yaml",
    "markdown-it-py": "markdown_it",
    "prometheus-client": "prometheus_client",
}

HALF_SENTENCES = {"Of", "So", "As", "See"}
"""No docstring begins with one of these: what follows needs the name above it, or another page."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

MODULES_MAX = 20
PROGRAMS = {"py-spy"}
"""What extras bring that is run, and not imported."""
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 90
BANNED_WORDS = {
    "manager",
    "handler",
    "util",
    "utils",
    "helper",
    "helpers",
    "common",
    "base",
    "impl",
}


@cache
def modules() -> tuple[Path, ...]:
    houses = [*(PRODUCT / package for package in PACKAGES), SIMULATOR]
    return tuple(sorted(path for house in houses for path in house.rglob("*.py")))


@cache
def module_names() -> dict[str, Path]:
    """All modules but packages, by their names within ``ledgermq`` or ``tests``."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]): path
        for path in modules()
        if path.name != "__init__.py"
    }


class Defined(NamedTuple):
    """A function or a class.

    ``lines``: from the name to the end, without the docstring: explaining is not to cost anything.
    """

    name: str
    line: int
    lines: int
    has_docstring: bool
    is_class: bool


class Module(NamedTuple):
    """What the rules ask of a module; its syntax tree would be a hundred times as large.

    Attributes:
        top: what is defined in the module itself.
        functions: all of them, wherever.
        imports: modules of ours, wherever they are imported.
        openings: lines and first words of all docstrings, those of attributes among them.
    """

    docstring: str
    top: list[Defined]
    functions: list[Defined]
    imports: set[str]
    openings: list[tuple[int, str]]


@cache
def read(path: Path) -> Module:
    # A tree is a hundred thousand objects, none of them garbage yet.
    gc.disable()
    try:
        tree = parsed(path.read_text())
        nodes = [*ast.walk(tree)]
        return Module(
            ast.get_docstring(tree) or "",
            [defined(node) for node in tree.body if isinstance(node, Definition)],
            [defined(node) for node in nodes if isinstance(node, Function)],
            {name for node in nodes if isinstance(node, ast.ImportFrom) for name in imported(node)},
            sorted(opening for node in nodes for opening in openings(node)),
        )
    finally:
        gc.enable()


def imported(node: ast.ImportFrom) -> Iterator[str]:
    """The modules of ours that are imported from."""
    house, _, base = (node.module or "").partition(".")
    if house in ("ledgermq", "tests"):
        for name in {base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)}:
            if name in module_names():
                yield name


def openings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The docstring of a module, a class or a function, and those behind the assignments in it."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    is_owner = isinstance(node, ast.Module | Definition)
    above: ast.stmt | None = None
    for statement in body:
        documents = is_owner if above is None else isinstance(above, ast.Assign | ast.AnnAssign)
        if (
            documents
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
            and (word := re.search(r"\w+", statement.value.value))
        ):
            yield statement.lineno, word[0]
        above = statement


def defined(node: Definition) -> Defined:
    first, last = node.body[0], node.end_lineno or 0
    lines = last - node.lineno + 1
    has_docstring = ast.get_docstring(node) is not None
    if has_docstring:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return Defined(node.name, node.lineno, lines, has_docstring, isinstance(node, ast.ClassDef))


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """What is left of a graph when all is gone that leads nowhere, or that nothing leads to."""
    left = {node: {to for to in targets if to != node} for node, targets in graph.items()}
    while True:
        free = {node for node, targets in left.items() if not targets & left.keys()}
        free |= left.keys() - {to for targets in left.values() for to in targets}
        if not free:
            return [sorted(left)] if left else []
        left = {node: targets for node, targets in left.items() if node not in free}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_links_at_the_root_lead_into_the_package_and_nothing_imports_through_them() -> None:
    # In a clone without symbolic links they are files that say where they would lead.
    here = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    found = [path for path in here if path.is_symlink() or path.name in LINKS]
    links = {
        path.name: path.readlink() if path.is_symlink() else Path(path.read_text())
        for path in found
    }
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]

    assert links == {name: Path("ledgermq", name) for name in LINKS}
    assert sorted(banned) == LINKS


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent.relative_to(PRODUCT) for path in PRODUCT.rglob("*.py")}

    assert sorted(folders - {Path()}) == FOLDERS


def test_the_layers_name_exactly_these_packages() -> None:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]

    assert sorted(name for layer in layers for name in re.split(r"[ |]+", layer)) == PACKAGES


def test_whoever_lacks_a_library_is_told_of_the_extra_that_brings_it() -> None:
    asked = extras()
    wanted = {
        IMPORTED_AS.get(name, name): extra
        for extra in ("spark", "buckets", "compression", "server")
        for name in (re.split(r"[<>=]", requirement)[0] for requirement in asked[extra])
        if name not in PROGRAMS
    }

    assert wanted == EXTRA_OF_PACKAGE


def test_a_folder_holds_as_many_modules_as_a_reader_can_survey() -> None:
    full = {
        str(folder): count
        for folder in FOLDERS
        if (count := sum(path.parent == PRODUCT / folder for path in modules()) - 1) > MODULES_MAX
    }

    assert full == {}


def test_packages_have_one_level_of_folders() -> None:
    deep = [str(folder) for folder in FOLDERS if len(folder.parts) > 2]

    assert deep == []


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert circles({module: read(path).imports for module, path in module_names().items()}) == []


def test_no_folders_of_a_package_import_one_another_in_a_circle() -> None:
    """The package's own modules stand above and below its folders: they are its door."""
    rooms: dict[str, set[str]] = {}
    for module, path in module_names().items():
        room = module.rpartition(".")[0]
        if "." not in room:
            continue
        others = {other.rpartition(".")[0] for other in read(path).imports}
        rooms.setdefault(room, set()).update(other for other in others if "." in other)

    assert circles(rooms) == []


@pytest.mark.parametrize("package", [str(folder) for folder in FOLDERS])
def test_a_package_says_what_it_holds_and_nothing_else(package: str) -> None:
    tree = parsed((PRODUCT / package / "__init__.py").read_text())
    said = {type(statement) for statement in tree.body[1:]}

    assert ast.get_docstring(tree)
    # The client is a library: its users import from the package, and nothing else is done there but
    # that old names are found for one release more (``old_names.py``).
    library = package in {"client", "client/aio"}
    allowed = {ast.ImportFrom, ast.Assign, ast.If, ast.FunctionDef}
    assert said == (allowed if library else set())


def test_every_module_begins_with_what_it_is_for() -> None:
    mute = [shown(path) for path in modules() if not read(path).docstring]

    assert mute == []


def test_the_modules_that_a_package_names_are_there() -> None:
    missing = [
        f"{shown(door)}: {name}"
        for door in modules()
        if door.name == "__init__.py"
        for name in re.findall(r"``([\w/]+\.py)``", read(door).docstring)
        if not any((folder / name).exists() for folder in (ROOT, PRODUCT, door.parent.parent))
        and not any(door.parent.rglob(name))
    ]

    assert missing == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        for one in read(path).top:
            if one.is_class and not one.name.startswith("_"):
                places.setdefault(one.name, []).append(shown(path))
    doubled = {name: files for name, files in places.items() if len(files) > 1}

    assert doubled.keys() == DOUBLED, doubled


def test_no_module_is_named_for_nothing() -> None:
    vague = [shown(path) for path in modules() if BANNED_WORDS & set(path.stem.split("_"))]

    assert vague == []


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    files = [
        *PRODUCT.rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "bench").rglob("*.py"),
    ]
    long = {
        shown(path): count
        for path in files
        if (count := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }

    assert long == {}


def test_every_function_fits_a_screen() -> None:
    long = [
        f"{shown(path)}:{function.line} {function.name}"
        for path in modules()
        for function in read(path).functions
        if function.lines > FUNCTION_LINES_MAX
    ]

    assert long == []


@pytest.mark.long
def test_public_functions_and_classes_have_a_docstring() -> None:
    mute = [
        f"{shown(path)}:{one.line} {one.name}"
        for path in modules()
        for one in read(path).top
        if not one.has_docstring and not one.name.startswith("_")
    ]

    assert mute == []


def test_docstrings_are_sentences_that_stand_without_the_name_above_them() -> None:
    halves = [
        f"{shown(path)}:{line} {word}"
        for path in modules()
        for line, word in read(path).openings
        if word in HALF_SENTENCES
    ]

    assert halves == []


def test_the_first_word_of_a_docstring_is_found_wherever_one_may_be() -> None:
    tree = ast.parse(
        """'''As a module.'''
LIMIT = 1
'''Of one file.'''
SIZE: int = 2
'''Size of it.'''
class Reader:
    '''See ``Source``.'''
    places: int
    '''So many places.'''
    def read(self):
        '''Read it.'''
        LIMIT
        '''As no docstring.'''
"""
    )

    found = sorted(opening for node in ast.walk(tree) for opening in openings(node))

    assert found == [(1, "As"), (3, "Of"), (5, "Size"), (7, "See"), (9, "So"), (11, "Read")]


def test_no_work_is_left_as_a_note() -> None:
    # Spelt apart, or this file would find itself.
    note = re.compile(r"#.*\b(" + "TO" + "DO|FIX" + "ME|X" + r"XX)\b")
    notes = [
        f"{shown(path)}:{number}"
        for path in [*PRODUCT.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if note.search(line)
    ]

    assert notes == []


def test_assertions_are_never_compiled_away() -> None:
    # Invariants are assert statements; the unit and the commands must not run with -O.
    units = (ROOT / "packaging").rglob("*.service*")
    wrong = [shown(path) for path in units if "PYTHONOPTIMIZE" in path.read_text()]

    assert wrong == []
