"""Run frames: how a follower and its leader agree on who of the node takes the leader's entries.

Layout, little-endian: kind u8, version u8, 6 bytes reserved, term i64, number i64
(docs/decisions/0133):

    16  WANTED   follower's raft to the leader's: what is steady may go right to its writer
    17  BEGINS   the leader's raft to the follower's, its writer to the writer: from here on it does
    18  OVER     follower's raft to the leader's: from now on it is raft's again
    19  INVITED  the leader's raft to the follower's: the writers have no connection, and the
                 follower's is awaited

``number`` is the follower's, and names one run for ever; of INVITED it is the port. Kinds of ship
frames are above these, and those of the consensus below.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Term

_FRAME = Struct("<BB6xqq")
_VERSION = 1
_KIND_MIN, _KIND_MAX = 16, 31


class RunKind(IntEnum):
    """What is said of a run."""

    WANTED = 16
    BEGINS = 17
    OVER = 18
    INVITED = 19


class RunFrame(NamedTuple):
    """A word about the follower's run ``number`` in ``term``."""

    kind: RunKind
    term: Term
    number: int


def is_run_frame(part: memoryview | bytes) -> bool:
    """Whether it says so by its kind."""
    return len(part) > 0 and _KIND_MIN <= part[0] <= _KIND_MAX


def encode_run_frame(frame: RunFrame) -> bytes:
    """The one part of the message."""
    return _FRAME.pack(frame.kind, _VERSION, frame.term, frame.number)


def decode_run_frame(part: memoryview | bytes) -> RunFrame:
    """What the part says.

    Raises:
        ProtocolError: it is none of this version's.
    """
    if len(part) != _FRAME.size:
        raise ProtocolError("run frame of a wrong size", size=len(part), expected=_FRAME.size)
    kind, version, term, number = _FRAME.unpack(part)
    if version != _VERSION or kind not in RunKind.__members__.values():
        raise ProtocolError("unknown run frame", kind=kind, version=version)
    if number <= 0 or term < 0:
        raise ProtocolError("run of no number or no term", number=number, term=term)
    return RunFrame(RunKind(kind), Term(term), number)
