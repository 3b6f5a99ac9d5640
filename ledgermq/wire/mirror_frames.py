"""Mirror frames: what a mirror and a member of its source say to one another, in bodies of HTTP.

A body is parts, one behind the other, each with its size (u32, little-endian) before it. The first
part of an answer is a ``SourceState`` as JSON. What follows are messages as members send them to
each other: appends of ``raft/message_codec.py``, each with its entries in the next part; frames of
``ship_frames`` and ``repair_frames``, those with bytes again with the next part. A question has
frames alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Self

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.model.units import MIB

PREFIX = "/mirror/v1"
CONTENT_TYPE = "application/octet-stream"

ANSWER_SIZE_MAX = 4 * MIB
"""Bytes of entries that an answer has at most, unless its only entry is larger."""

BODY_SIZE_MAX = 24 * MIB
"""No whole answer is larger: an entry, a file's slices, or a frame of entries more than asked."""

QUESTION_SIZE_MAX = 4 * 1024
PARTS_MAX = 64

_PART_SIZE = Struct("<I")
NUMBER_MAX = 2**62
STATE_TEXT_MAX = 255


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a member of the source is, and how far.

    Attributes:
        cluster, group: names of the source.
        node, leads: the member, and whether it leads.
        hears: it leads, or knows who does: where not, more may be committed than it knows of.
        file_size: bytes of a file of its log.
        first: index of the first entry that its log has; -1 in an empty log.
        position, index, term: its end of what is committed.
    """

    cluster: str
    group: str
    node: str
    leads: bool
    hears: bool
    file_size: int
    first: Index
    position: Position
    index: Index
    term: Term

    def encode(self) -> bytes:
        """The first part of an answer, in JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, part: memoryview | bytes) -> Self:
        """The state in ``part``.

        Raises:
            ProtocolError: it is none.
        """
        try:
            fields = json.loads(bytes(part))
        except (ValueError, RecursionError) as error:
            raise ProtocolError("state of a source is no JSON") from error
        if not isinstance(fields, dict):
            raise ProtocolError("state of a source is no object")
        # More fields are those of a newer version.
        return cls(
            _text(fields, "cluster"),
            _text(fields, "group"),
            _text(fields, "node"),
            _flag(fields, "leads"),
            _flag(fields, "hears"),
            _number(fields, "file_size"),
            Index(_number(fields, "first")),
            Position(_number(fields, "position")),
            Index(_number(fields, "index")),
            Term(_number(fields, "term")),
        )


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > STATE_TEXT_MAX:
        raise ProtocolError("state of a source with a field that cannot be", field=name)
    return value


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise ProtocolError("state of a source with a field that cannot be", field=name)
    return value


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= NUMBER_MAX:
        raise ProtocolError("state of a source with a field that cannot be", field=name)
    return value


def join_parts(parts: Iterable[bytes | memoryview]) -> bytes:
    """The body that has ``parts``."""
    joined: list[bytes | memoryview] = []
    for part in parts:
        joined += [_PART_SIZE.pack(len(part)), part]
    return b"".join(joined)


def split_parts(body: bytes) -> list[memoryview]:
    """The parts of a body, which are views of it.

    Raises:
        ProtocolError: they do not fill it, or there are too many.
    """
    whole, at = memoryview(body), 0
    parts: list[memoryview] = []
    while at < len(whole):
        begin = at + _PART_SIZE.size
        size = _PART_SIZE.unpack_from(whole, at)[0] if begin <= len(whole) else NUMBER_MAX
        if begin + size > len(whole) or len(parts) == PARTS_MAX:
            raise ProtocolError(
                "parts of a body are torn, or too many", size=len(whole), at=at, limit=PARTS_MAX
            )
        parts.append(whole[begin : begin + size])
        at = begin + size
    return parts
