"""Receipts of pieces: whether pieces have what checkpoints in them were signed for.

Who may write to a place may write pieces, sums and notes anew; none of that has the key of the
broker set. All checkpoints are gone through first, one after the other, and then the messages of
each stretch, some queues at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ledgermq.formats.receipts.checkpoint import ReceiptCheckpoint, SignedHead, SignedStretch
from ledgermq.formats.receipts.checkpoint_chain import chained
from ledgermq.formats.receipts.merkle_tree import Peaks, leaf_hash
from ledgermq.formats.receipts.signed_note import NoteKey
from ledgermq.formats.records.message import POSITION, QUEUE_OFFSET_AT, decode_message
from ledgermq.model.errors import (
    ConfigError,
    KeyMissingError,
    MessageUnknownError,
)
from ledgermq.model.limits import RECEIPTS_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.pipeline.pieces.cold_queues import ColdQueues

QUEUES_AT_ONCE = 64
"""Queues that are read beside one another: a row group of each is in memory."""


class ProvenPieces(NamedTuple):
    """What was signed, and is there.

    Attributes:
        messages: that were compared.
        lacking: stretches of which messages were dropped, or were never sealed, or are locked with
            a key that is not here: what is left of them cannot be compared.
        at_ms: when the newest checkpoint was signed, epoch ms.
    """

    checkpoints: int
    stretches: int
    messages: int
    lacking: int
    at_ms: int


def prove_pieces(
    queues: ColdQueues, keys: Sequence[NoteKey], *, since: SignedHead | None = None
) -> ProvenPieces:
    """Compare pieces with the checkpoints in them, signed by ``keys``.

    Args:
        since: a checkpoint that was kept: those of the pieces have to go on from it.

    Raises:
        ConfigError: the pieces have no checkpoint.
        CorruptLogError: a checkpoint is not signed, or does not go on from the one before, or
            messages are others than those that were signed; names them.
        MessageUnknownError, StorageError: as ``ColdQueues.read``, of the topic of receipts.
    """
    checkpoints = at_ms = 0
    names: dict[QueueName, None] = {}
    for one, head, _ in chained(_checkpoints(queues), keys, since=since):
        names |= dict.fromkeys(QueueName(*stretch[:2]) for stretch in one.stretches)
        checkpoints, at_ms = checkpoints + 1, head.at_ms
    stretches = messages = lacking = 0
    wanted = list(names)
    for first in range(0, len(wanted), QUEUES_AT_ONCE):
        readers = {name: _Reader(queues, name) for name in wanted[first : first + QUEUES_AT_ONCE]}
        for _, one in _checkpoints(queues):
            for stretch in one.stretches:
                reader = readers.get(QueueName(*stretch[:2]))
                if reader is None:
                    continue
                if reader.has(stretch):
                    stretches += 1
                    messages += stretch.end - stretch.first
                else:
                    lacking += 1
    return ProvenPieces(checkpoints, stretches, messages, lacking, at_ms)


def _checkpoints(queues: ColdQueues) -> Iterator[tuple[int, ReceiptCheckpoint]]:
    found = queues.queues().get(QueueName(RECEIPTS_TOPIC, 0))
    if found is None:
        raise ConfigError("no checkpoint of receipts is in the pieces")
    for record in queues.read(RECEIPTS_TOPIC, 0, found.first):
        message = decode_message(memoryview(record.record))
        yield message.queue_offset, ReceiptCheckpoint.decode(message.body)


class _Reader:
    """Reads a queue on, stretch after stretch."""

    def __init__(self, queues: ColdQueues, name: QueueName) -> None:
        self._queues = queues
        self._name = name
        self._records: Iterator[bytes] = iter(())
        # Offset of the next record that ``_records`` gives, if all are there; -1: anew.
        self._next = -1

    def has(self, stretch: SignedStretch) -> bool:
        """Whether the messages of a stretch are there, and those that were signed.

        Raises:
            CorruptLogError: they are others.
        """
        if self._next != stretch.first:
            self._records = self._from(stretch.first)
        self._next = -1
        tree = Peaks()
        try:
            for offset in range(stretch.first, stretch.end):
                record = next(self._records, None)
                if record is None or _offset_of(record) != offset:
                    return False
                tree.append(leaf_hash(record))
        except (KeyMissingError, MessageUnknownError):
            return False
        stretch.check(tree.root())
        self._next = stretch.end
        return True

    def _from(self, offset: int) -> Iterator[bytes]:
        return (one.record for one in self._queues.read(*self._name, offset))


def _offset_of(record: bytes) -> int:
    offset: int = POSITION.unpack_from(record, QUEUE_OFFSET_AT)[0]
    return offset
