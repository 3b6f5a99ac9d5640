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

from collections.abc import Callable
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from ledgermq.formats.digest import CRC, with_crc, without_crc
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


_State = TypeVar("_State")


class Stored(NamedTuple, Generic[_State]):
    """The newest whole slot: its sequence and its content."""

    sequence: int
    state: _State


StoredState = Stored[HardState]


def encode_slot(sequence: int, state: HardState) -> tuple[int, bytes]:
    """Offset and bytes of the slot that ``state`` goes to as number ``sequence``."""
    vote = (state.vote or "").encode()
    assert len(vote) <= VOTE_SIZE_MAX, state
    return slot_of(sequence, _SLOT.pack(_MAGIC, _VERSION, sequence, state.term, vote))


def slot_of(sequence: int, body: bytes) -> tuple[int, bytes]:
    """Offset and bytes of the slot that ``body`` goes to as number ``sequence``."""
    return (sequence % 2) * SLOT_SIZE, with_crc(body).ljust(SLOT_SIZE, b"\0")


def decode_slots(content: bytes) -> StoredState | None:
    """The newest whole slot; None for a file that was never written.

    Raises:
        CorruptLogError: neither slot is whole. Voting from an older state could elect two leaders,
            so the node must not start until an operator has decided.
    """
    return newest_slot(content, decode_slot, said="term and vote")


def newest_slot(
    content: bytes, decode: Callable[[bytes], Stored[_State] | None], *, said: str
) -> Stored[_State] | None:
    """The newest whole slot as ``decode`` gives them; None for a file that was never written.

    Raises:
        CorruptLogError: neither slot is whole; names what is ``said`` in them.
    """
    slots = [decode(content[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
    whole = [slot for slot in slots if slot is not None]
    if whole:
        return max(whole, key=lambda slot: slot.sequence)
    if any(content):
        raise CorruptLogError(f"{said} cannot be read: neither slot is whole")
    return None


def decode_slot(slot: bytes) -> StoredState | None:
    """What one slot of ``SLOT_SIZE`` bytes says; None when it is not whole."""
    body = without_crc(slot, _SLOT.size)
    if body is None:
        return None
    magic, version, sequence, term, vote = _SLOT.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    return StoredState(sequence, hard_state_of(term, vote))


def hard_state_of(term: int, vote: bytes) -> HardState:
    """The state of which a slot has these fields."""
    name = vote.rstrip(b"\0").decode()
    return HardState(Term(term), NodeId(name) if name else None)
