"""Term and vote on disk: two slots, written in turn, so that a torn write leaves the other one.

Layout of ``ROOT/ledgermq/term``, little-endian, two slots of 512 bytes (a sector each):

    offset  size  field
    0       4     magic ``LMQT``
    4       4     version, 1
    8       8     sequence: the slot with the larger one counts
    16      8     term
    24      32    node voted for, UTF-8, zero-padded; empty: none
    56      4     CRC-32 of the bytes before

A slot is durable before the vote or the append reply that depends on it leaves the node (Raft
paper, figure 2, persistent state).
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.digest import CRC
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NodeId, Term
from ledgermq.raft.messages import HardState

SLOT_SIZE = 512
FILE_SIZE = 2 * SLOT_SIZE
VOTE_SIZE_MAX = 32
_SLOT = Struct("<4sIQQ32s")
assert _SLOT.size == 24 + VOTE_SIZE_MAX
SLOT_USED = _SLOT.size + CRC.size
"""Bytes of a slot that say something; the others are zeros."""

_MAGIC = b"LMQT"
_VERSION = 1


class StoredState(NamedTuple):
    """The newest whole slot: its sequence and its content."""

    sequence: int
    state: HardState


def encode_slot(sequence: int, state: HardState) -> tuple[int, bytes]:
    """Offset and bytes of the slot that ``state`` goes to as number ``sequence``."""
    vote = (state.vote or "").encode()
    assert len(vote) <= VOTE_SIZE_MAX, state
    body = _SLOT.pack(_MAGIC, _VERSION, sequence, state.term, vote)
    content = body + CRC.pack(zlib.crc32(body))
    return (sequence % 2) * SLOT_SIZE, content.ljust(SLOT_SIZE, b"\0")


def decode_slots(content: bytes) -> StoredState | None:
    """The newest whole slot; None for a file that was never written.

    Raises:
        CorruptLogError: neither slot is whole. Voting from an older state could elect two leaders,
            so the node must not start until an operator has decided.
    """
    slots = [decode_slot(content[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
    whole = [slot for slot in slots if slot is not None]
    if whole:
        return max(whole, key=lambda slot: slot.sequence)
    if any(content):
        raise CorruptLogError("term and vote cannot be read: neither slot is whole")
    return None


def decode_slot(slot: bytes) -> StoredState | None:
    """What one slot of ``SLOT_SIZE`` bytes says; None when it is not whole."""
    if len(slot) < _SLOT.size + CRC.size:
        return None
    body = slot[: _SLOT.size]
    if CRC.unpack_from(slot, _SLOT.size)[0] != zlib.crc32(body):
        return None
    magic, version, sequence, term, vote = _SLOT.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    name = vote.rstrip(b"\0").decode()
    return StoredState(sequence, HardState(Term(term), NodeId(name) if name else None))
