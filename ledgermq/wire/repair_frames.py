"""Repair frames: requests between members for damaged entries, and their answers.

Any member may ask any other one, whoever leads: the entries were committed. Who answers has read
and verified them; who asked verifies them again.

Layout, little-endian: kind u8, version u8, 6 bytes reserved, then four signed 64-bit numbers:

    number       chosen by who asks; the answer has the same
    first, last  indexes of entries
    term         of the entry ``first``

    ASK_ENTRIES  send the entries from ``first`` to ``last``, or as many of them as one answer holds
    ENTRIES      the entries from ``first`` to ``last``, as they stand in the log, are the next
                 part; then follows their digest (BLAKE2b, 32 bytes)
    NO_ENTRIES   the one that answers has no whole entry ``first`` of this term

Kinds begin at 64: below are those of ``ship_frames`` and of ``raft/message_codec.py``.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.digest import DIGEST_SIZE, content_digest
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Term

VERSION = 1
KIND_MIN = 64
ENTRIES_SIZE_MAX = 1024 * 1024
"""Most bytes of an answer, unless its only entry is larger."""

_FRAME = Struct("<BB6xqqqq")


class RepairKind(IntEnum):
    """What a frame says; numbers are never reused."""

    ASK_ENTRIES = 64
    ENTRIES = 65
    NO_ENTRIES = 66


class RepairFrame(NamedTuple):
    """One question or answer; ``digest`` stands in ENTRIES alone."""

    kind: RepairKind
    number: int
    first: Index
    last: Index
    term: Term
    digest: bytes = b""


def is_repair_frame(part: memoryview | bytes) -> bool:
    """Whether ``part`` is to be decoded here."""
    return len(part) > 0 and part[0] >= KIND_MIN


def encode_repair_frame(frame: RepairFrame) -> bytes:
    """The bytes of ``frame``."""
    assert len(frame.digest) == (DIGEST_SIZE if frame.kind is RepairKind.ENTRIES else 0), frame
    return (
        _FRAME.pack(frame.kind, VERSION, frame.number, frame.first, frame.last, frame.term)
        + frame.digest
    )


def decode_repair_frame(part: memoryview | bytes) -> RepairFrame:
    """The frame in ``part``.

    Raises:
        ProtocolError: it is none of this version, or a number in it cannot be.
    """
    if len(part) < _FRAME.size:
        raise ProtocolError("repair frame cut short", size=len(part), expected=_FRAME.size)
    kind, version, number, first, last, term = _FRAME.unpack_from(part)
    if version != VERSION:
        raise ProtocolError("repair frame of another version", version=version, ours=VERSION)
    if kind not in RepairKind.__members__.values():
        raise ProtocolError("unknown kind of repair frame", kind=kind)
    digest = bytes(part[_FRAME.size :])
    if len(digest) != (DIGEST_SIZE if kind == RepairKind.ENTRIES else 0):
        raise ProtocolError("repair frame of a wrong size", size=len(part), kind=kind)
    if first < 0 or last < first or term < 0:
        raise ProtocolError("repair frame with impossible numbers", first=first, last=last)
    return RepairFrame(RepairKind(kind), number, Index(first), Index(last), Term(term), digest)


def entries_digest(data: bytes | memoryview) -> bytes:
    """The digest that goes with the entries of an answer."""
    return content_digest(data)
