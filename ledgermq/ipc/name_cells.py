"""Names of members as fields of the cursor page: one in two fields, or several, one a field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledgermq.model.ids import NodeId

NAMES_MAX = 7
"""A slot has as many fields behind its sequence."""

_NAME_SIZE = 16
_BITS = 7
_SHORT_SIZE = 9
"""Characters of a member's name: a letter and up to eight digits (``members/roster.py``)."""


def name_cells(name: NodeId) -> tuple[int, int]:
    """A name of up to 16 ASCII characters."""
    content = name.encode("ascii").ljust(_NAME_SIZE, b"\0")
    assert len(content) == _NAME_SIZE, name
    return int.from_bytes(content[:8], "big"), int.from_bytes(content[8:], "big")


def name_of(cells: Iterable[int]) -> NodeId:
    """What ``name_cells`` was given."""
    content = b"".join(cell.to_bytes(8, "big") for cell in cells)
    return NodeId(content.rstrip(b"\0").decode("ascii"))


def names_cells(names: Sequence[NodeId]) -> tuple[int, ...]:
    """The first seven of ``names``, one a field: seven bits a character; zeros behind them."""
    found = [_packed(name) for name in names[:NAMES_MAX]]
    return (*found, *(0 for _ in range(NAMES_MAX - len(found))))


def names_of(cells: Iterable[int]) -> frozenset[NodeId]:
    """What ``names_cells`` was given, in no order."""
    return frozenset(_unpacked(cell) for cell in cells if cell)


def _packed(name: NodeId) -> int:
    content = name.encode("ascii")
    assert len(content) <= _SHORT_SIZE, name
    packed = 0
    for character in content:
        packed = packed << _BITS | character
    return packed


def _unpacked(packed: int) -> NodeId:
    content = bytearray()
    while packed:
        content.append(packed & (1 << _BITS) - 1)
        packed >>= _BITS
    return NodeId(content[::-1].decode("ascii"))
