"""File of a witness without bodies: term, vote and last known entry, in two slots.

Layout of ``ROOT/ledgermq/witness``, little-endian, two slots of 512 bytes (a sector each), written
in turn, so that a torn write leaves the other one:

    offset  size  field
    0       4     magic ``LMQW``
    4       4     version, 1
    8       8     sequence: the slot with the larger one counts
    16      8     term
    24      32    node voted for, UTF-8, zero-padded; empty: none
    56      8     term of the last known entry
    64      8     index of that entry, signed; -1: none is known
    72      4     CRC-32 of the bytes before
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from ledgermq.formats.digest import CRC, without_crc
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Term
from ledgermq.raft.messages import EntryId
from ledgermq.raft.roles.witness import KEEPS_NOTHING, WitnessState
from ledgermq.raft.term_slots import (
    FILE_SIZE,
    SLOT_SIZE,
    VOTE_SIZE_MAX,
    Stored,
    hard_state_of,
    newest_slot,
    slot_of,
)
from ledgermq.raft_node.term_file import SlotsFile

_SLOT = Struct("<4sIQQ32sQq")
assert _SLOT.size + CRC.size <= SLOT_SIZE

_MAGIC = b"LMQW"
_VERSION = 1


StoredWitness = Stored[WitnessState]


class WitnessFile:
    """Reads and writes what a witness keeps; owned by its raft process.

    Attributes:
        state: what is durable.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``, made if it is not there; what is found is durable then.

        Raises:
            StorageError: the operating system refused.
            CorruptLogError: neither slot is whole: a vote by an older state could elect a leader
                that lacks what was acknowledged.
        """
        self._slots = SlotsFile(path, FILE_SIZE, of="what this witness knows")
        try:
            stored = decode_slots(self._slots.content)
        except CorruptLogError as error:
            self._slots.close()
            raise CorruptLogError(error.message, file=str(path)) from error
        self._sequence, self.state = stored or StoredWitness(0, KEEPS_NOTHING)
        if stored is not None:
            # Who wrote it may have ended before it was synced.
            self._write(stored)

    def persist(self, state: WitnessState) -> None:
        """Durable when this returns.

        Raises:
            StorageError: it is not, and nothing that depends on it may leave the node.
        """
        self._write(StoredWitness(self._sequence + 1, state))
        self._sequence += 1
        self.state = state

    def close(self) -> None:
        """Close the file."""
        self._slots.close()

    def _write(self, stored: StoredWitness) -> None:
        self._slots.write(*encode_slot(*stored))


def encode_slot(sequence: int, state: WitnessState) -> tuple[int, bytes]:
    """Offset and bytes of the slot that ``state`` goes to as number ``sequence``."""
    vote = (state.hard_state.vote or "").encode()
    assert len(vote) <= VOTE_SIZE_MAX, state
    last = state.last
    body = _SLOT.pack(
        _MAGIC, _VERSION, sequence, state.hard_state.term, vote, last.term, last.index
    )
    return slot_of(sequence, body)


def decode_slots(content: bytes) -> StoredWitness | None:
    """The newest whole slot; None for a file that was never written.

    Raises:
        CorruptLogError: neither slot is whole.
    """
    return newest_slot(content, _decode_slot, said="what this witness knows")


def _decode_slot(slot: bytes) -> StoredWitness | None:
    body = without_crc(slot, _SLOT.size)
    if body is None:
        return None
    magic, version, sequence, term, vote, last_term, last = _SLOT.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    state = WitnessState(hard_state_of(term, vote), EntryId(Term(last_term), Index(last)))
    return StoredWitness(sequence, state)
