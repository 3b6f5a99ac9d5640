"""A constant has one home: no name has the same value in two modules of the product.

Where two subjects have a number alike by chance, their names say of what each is. What is left is
in a list that may only become shorter.
"""

from __future__ import annotations

import ast
import operator
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.suite.parsed import parsed
from tests.test_layout import modules, shown

OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
STRUCTS = {"struct.Struct", "imported struct.Struct"}

EACH_ITS_OWN = {"MAGIC", "VERSION"}
"""Each format has its own, and counts by itself."""

LEFT: dict[str, int] = {
    "HEAD_SIZE": 1,
    "INT32_MAX": 1,
    "MALFORMED": 1,
    "MASK": 2,
    "NOBLOCK": 1,
    "NO_UNIT": 1,
    "POLLIN": 1,
    "SIGN": 3,
    "WRAP": 2,
}
"""Names of which a value is defined too often, and how often too often."""


LITERALS_LEFT = {
    ("ledgermq/model/config/settings_rules.py", "INDEX_HEADER_SIZE"),
    ("ledgermq/model/config/settings_rules.py", "INDEX_ITEM_SIZE"),
    ("ledgermq/model/config/settings_rules.py", "INDEX_SLOT_SIZE"),
    ("ledgermq/model/config/settings_rules.py", "QUEUE_UNIT_SIZE"),
}
"""Numbers of a format that are typed again: the settings are below the formats."""


@cache
def statements_of(path: Path) -> tuple[ast.stmt, ...]:
    """The statements of a module, without what is within its functions and classes."""
    statements = parsed(path.read_text()).body
    for statement in statements:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            statement.body = []
    return tuple(statements)


class Constants:
    """The constants of one module, each with what it stands for as far as reading tells.

    A number is a number however it is written, a name that is imported is what it is where it
    comes from, and everything else is its text with these in it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, object] = {}
        self._names: dict[str, object] = {}
        for statement in statements_of(path):
            if isinstance(statement, ast.ClassDef | ast.FunctionDef):
                self._names[statement.name] = f"{path}:{statement.name}"
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    name = alias.asname or alias.name
                    self._names[name] = f"imported {statement.module}.{alias.name}"
            for name, node in assigned(statement):
                value = self._names[name] = self._value(node)
                # A second name for what another module has is no second definition, and a number
                # that is compiled into a kernel cannot be had from another module.
                is_own = not isinstance(node, ast.Name) and not is_compiled(node)
                if name.strip("_").isupper() and is_own:
                    self.found[name.strip("_")] = value

    def _value(self, node: ast.expr) -> object:  # noqa: PLR0911
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else repr(node.value)
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.BinOp):
            sides = self._value(node.left), self._value(node.right)
            if type(node.op) in OPERATORS and all(type(side) is int for side in sides):
                return OPERATORS[type(node.op)](*sides)
            return f"({sides[0]} {type(node.op).__name__} {sides[1]})"
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand)
            return -value if isinstance(value, int) else f"{type(node.op).__name__} {value}"
        if isinstance(node, ast.Attribute):
            of = self._value(node.value)
            layout = str(of).partition("(")[2].removesuffix(")").strip("'")
            if node.attr == "size" and str(of).partition("(")[0] in STRUCTS:
                return struct.calcsize(layout)
            return f"{of}.{node.attr}"
        if isinstance(node, ast.Call):
            words = [f"{word.arg}={self._value(word.value)}" for word in node.keywords]
            inside = ", ".join([*(str(self._value(one)) for one in node.args), *words])
            return f"{self._value(node.func)}({inside})"
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Subscript):
            inner = [self._value(one) for one in ast.iter_child_nodes(node) if is_value(one)]
            return f"{type(node).__name__}{inner}"
        # What a comprehension or a lambda gives is not looked into.
        return f"{self._path}:{node.lineno}"


def is_compiled(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "cython.declare"


def is_value(node: ast.AST) -> bool:
    return isinstance(node, ast.expr)


def assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement gives values, one by one where there are several."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=True))
    yield from ((name.id, one) for name, one in pairs if isinstance(name, ast.Name))


def doubled() -> dict[str, list[list[str]]]:
    """For each name the lists of modules in which it has one value."""
    places: dict[tuple[str, object], list[str]] = defaultdict(list)
    for path in modules():
        for name, value in Constants(path).found.items():
            places[name, value].append(shown(path))
    found: dict[str, list[list[str]]] = defaultdict(list)
    for (name, _), paths in places.items():
        if len(paths) > 1:
            found[name].append(paths)
    return dict(found)


def is_kernel(path: Path) -> bool:
    """Whether it is compiled by itself: numbers of the formats stand in its code."""
    return path.parent.name == "kernels" and path.name.startswith("_")


def typed_again() -> set[tuple[str, str]]:
    """Numbers outside of ``formats`` that have the end of the name of one there, and its value."""
    codecs = [
        path
        for path in modules()
        if shown(path).startswith("ledgermq/formats/") and not is_kernel(path)
    ]
    homes: dict[object, set[str]] = defaultdict(set)
    for path in codecs:
        for name, value in Constants(path).found.items():
            homes[value].add(name)
    found: set[tuple[str, str]] = set()
    for path in set(modules()) - set(codecs):
        if is_kernel(path):
            continue
        for name, node in (pair for one in statements_of(path) for pair in assigned(one)):
            typed = node.value if isinstance(node, ast.Constant) else None
            if any(name.strip("_").endswith(f"_{home}") for home in homes[typed]):
                found.add((shown(path), name.strip("_")))
    return found


def test_a_number_of_a_format_is_typed_once() -> None:
    assert typed_again() == LITERALS_LEFT


def test_a_constant_has_one_home() -> None:
    found = {name: lists for name, lists in doubled().items() if name not in EACH_ITS_OWN}
    too_often = {name: sum(len(one) - 1 for one in lists) for name, lists in found.items()}

    # One that is gone, or less often there, goes from the list, too.
    assert {name: (too_often[name], found[name]) for name in too_often.keys() - LEFT.keys()} == {}
    assert {name: count for name, count in LEFT.items() if too_often.get(name) != count} == {}
