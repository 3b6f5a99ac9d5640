"""Making of receipts: from what any reader of queues is given, a node's or of pieces.

Nothing is asked of a broker but messages: those of the topic of receipts, and those of the stretch
that the message is in. What comes out proves itself, so nobody who gives them has to be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.queries import Queries
from ledgermq.formats.receipts.checkpoint import (
    STRETCH_BYTES_MAX,
    ReceiptCheckpoint,
    SignedHead,
)
from ledgermq.formats.receipts.merkle_tree import (
    GrownTree,
    included_root,
    inclusion_proof,
    leaf_hash,
)
from ledgermq.formats.receipts.receipt import Receipt
from ledgermq.model.errors import (
    ConfigError,
    CorruptLogError,
    MessageUnknownError,
    TopicUnknownError,
)
from ledgermq.model.limits import ENTRY_SIZE_MAX, RECEIPTS_TOPIC

PULLED_BYTES = 4 * 1024 * 1024
PULLED_MESSAGES = 4_096
"""Bytes and messages of one answer of a node."""

STRETCHES_MAX = 1 << 20
"""Stretches between two checkpoints: their hashes stand in memory."""


class QueueSource(Protocol):
    """Gives messages of queues."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First offset of a queue, and the one behind its last message."""
        ...

    def read(self, topic: str, queue_id: int, offset: int) -> Iterator[ReceivedMessage]:
        """The messages of a queue from an offset on; those that are not there are left out."""
        ...


class NodeQueues:
    """Messages of a running node; ``queries`` stays the caller's."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        first, end = self._queries.offsets(topic, queue_id)
        return first, end

    def read(self, topic: str, queue_id: int, offset: int) -> Iterator[ReceivedMessage]:
        while True:
            batch = self._queries.browse(
                topic, queue_id, offset, messages_max=PULLED_MESSAGES, bytes_max=PULLED_BYTES
            )
            yield from batch
            if batch.next_offset <= offset:
                return
            offset = batch.next_offset


class _Found(NamedTuple):
    offset: int
    checkpoint: ReceiptCheckpoint


class ReceiptMaker:
    """Makes receipts of what a source gives."""

    def __init__(self, source: QueueSource) -> None:
        """Nothing is read yet."""
        self._source = source

    def newest(self) -> ReceiptCheckpoint:
        """The newest checkpoint.

        Raises:
            MessageUnknownError: there is none.
            LedgerError: as of the source.
        """
        return self._checkpoint(self._bounds()[1] - 1)

    def offset_of(self, size: int) -> int:
        """Offset of the first checkpoint whose tree has ``size`` stretches, or more.

        Raises:
            MessageUnknownError: there is no checkpoint, or none is so large yet.
            LedgerError: as of the source.
        """
        found = self._first_where(lambda one: _size_of(one) >= size)
        if found is None:
            raise MessageUnknownError(
                "the newest checkpoint is older than the one that is held", held=size
            )
        return found.offset

    def make(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        since_size: int = 0,
        by: SignedHead | None = None,
    ) -> Receipt:
        """The receipt of a message.

        Args:
            since_size: of the tree of a checkpoint that somebody holds: the receipt shows that its
                own goes on from that one; 0: that is not wanted.
            by: the checkpoint that is to prove it, with its signatures; None: the first one that
                has the message.

        Raises:
            MessageUnknownError: there is no such message, or no checkpoint has it yet, or it is of
                a topic without receipts, or others of its stretch are gone.
            CorruptLogError: what was given does not fit together.
            ConfigError: too many checkpoints are between the two.
            LedgerError: as of the source.
        """
        message = next(self._source.read(topic, queue_id, offset), None)
        if message is None or message.queue_offset != offset:
            raise MessageUnknownError(
                "there is no such message", topic=topic, queue=queue_id, offset=offset
            )
        found, index = self._with(topic, queue_id, offset, message.physical_offset)
        stretch = found.checkpoint.stretches[index]
        leaves, record = self._leaves(topic, queue_id, stretch.first, stretch.end, offset)
        in_stretch = inclusion_proof(leaves, offset - stretch.first)
        count = stretch.end - stretch.first
        stretch.check(included_root(leaf_hash(record), offset - stretch.first, count, in_stretch))
        last, tree = self._tree(found, since_size if by is None else by.size)
        place = found.checkpoint.before.size + index
        note = last.note if by is None else _note_by(by, tree)
        receipt = Receipt(
            record, stretch, tuple(in_stretch), place, tuple(tree.inclusion(place)), note
        )
        if not since_size:
            return receipt
        return receipt._replace(since_size=since_size, since=tuple(self._since(last, since_size)))

    def _bounds(self) -> tuple[int, int]:
        try:
            first, end = self._source.bounds(RECEIPTS_TOPIC, 0)
        except TopicUnknownError as error:
            raise MessageUnknownError("no checkpoint of receipts was ever made") from error
        if first >= end:
            raise MessageUnknownError("there is no checkpoint of receipts")
        return first, end

    def _checkpoint(self, offset: int) -> ReceiptCheckpoint:
        for message in self._source.read(RECEIPTS_TOPIC, 0, offset):
            return ReceiptCheckpoint.decode(message.body)
        raise MessageUnknownError("checkpoint of receipts is not there", offset=offset)

    def _first_where(self, holds: Callable[[ReceiptCheckpoint], bool]) -> _Found | None:
        """The first checkpoint of which something holds that holds of all later ones."""
        first, end = self._bounds()
        found: _Found | None = None
        while first < end:
            middle = (first + end) // 2
            checkpoint = self._checkpoint(middle)
            if holds(checkpoint):
                found, end = _Found(middle, checkpoint), middle
            else:
                first = middle + 1
        return found

    def _with(self, topic: str, queue_id: int, offset: int, position: int) -> tuple[_Found, int]:
        """The checkpoint that has added a message, and which of its stretches that is in."""
        where = {"topic": topic, "queue": queue_id, "offset": offset}
        found = self._first_where(lambda one: one.end > position)
        if found is None:
            raise MessageUnknownError(
                "no checkpoint has the message yet, if its topic has receipts: ask again in a"
                " second",
                **where,
            )
        for index, one in enumerate(found.checkpoint.stretches):
            if one[:2] == (topic, queue_id) and one.first <= offset < one.end:
                return found, index
        raise MessageUnknownError(
            "the message has no receipt: its topic had none when it came", **where
        )

    def _leaves(
        self, topic: str, queue_id: int, first: int, end: int, offset: int
    ) -> tuple[list[bytes], bytes]:
        """Hashes of a stretch's messages, and the record of one of them."""
        leaves: list[bytes] = []
        record, size = b"", 0
        for message in self._source.read(topic, queue_id, first):
            if message.queue_offset >= end:
                break
            if message.queue_offset != first + len(leaves):
                break
            size += len(message.record)
            # The last message begins within the bound.
            if size > (limit := STRETCH_BYTES_MAX + ENTRY_SIZE_MAX):
                raise CorruptLogError("stretch of a checkpoint is too long", size=size, limit=limit)
            leaves.append(leaf_hash(message.record))
            if message.queue_offset == offset:
                record = bytes(message.record)
            if first + len(leaves) == end:
                return leaves, record
        raise MessageUnknownError(
            "messages that a receipt needs are not there any more: they were deleted, or compacted",
            topic=topic,
            queue=queue_id,
            offset=first + len(leaves),
        )

    def _tree(self, found: _Found, since_size: int) -> tuple[ReceiptCheckpoint, GrownTree]:
        """The checkpoint to prove by, and its tree from the one that has the message on."""
        last, leaves = found.checkpoint, [one.leaf() for one in found.checkpoint.stretches]
        for one in self._following(found, since_size):
            last = one
            leaves += [stretch.leaf() for stretch in one.stretches]
        return last, GrownTree(found.checkpoint.before, leaves)

    def _since(self, last: ReceiptCheckpoint, since_size: int) -> Sequence[bytes]:
        """The proof that the tree of ``last`` goes on from the one of that size."""
        size = _size_of(last)
        held = self._first_where(lambda one: _size_of(one) >= since_size)
        peaks = None if held is None else held.checkpoint.after()
        if held is None or peaks is None or peaks.size != since_size:
            raise MessageUnknownError(
                "there is no checkpoint of that size: it is of another log, or gone",
                size=since_size,
            )
        leaves = [
            stretch.leaf() for one in self._following(held, size) for stretch in one.stretches
        ]
        return GrownTree(peaks, leaves).consistency()

    def _following(self, found: _Found, size: int) -> Iterator[ReceiptCheckpoint]:
        """The checkpoints behind one, up to the first one whose tree has ``size`` stretches."""
        tree = found.checkpoint.after()
        if tree.size >= size:
            return
        if size - tree.size > STRETCHES_MAX:
            raise ConfigError(
                "too many stretches are between two checkpoints",
                stretches=size - tree.size,
                limit=STRETCHES_MAX,
            )
        for message in self._source.read(RECEIPTS_TOPIC, 0, found.offset + 1):
            checkpoint = ReceiptCheckpoint.decode(message.body)
            if checkpoint.before != tree:
                raise CorruptLogError(
                    "checkpoints do not follow one another", offset=message.queue_offset
                )
            yield checkpoint
            for stretch in checkpoint.stretches:
                tree.append(stretch.leaf())
            if tree.size >= size:
                return
        raise MessageUnknownError(
            "the newest checkpoint is older than the one that is held", size=tree.size, held=size
        )


def _size_of(checkpoint: ReceiptCheckpoint) -> int:
    """Stretches of its tree."""
    return checkpoint.before.size + len(checkpoint.stretches)


def _note_by(by: SignedHead, tree: GrownTree) -> str:
    """The note of a checkpoint that is to prove what is in ``tree``.

    Raises:
        MessageUnknownError: the message came behind it.
        CorruptLogError: it is of another history.
    """
    if tree.size > by.size:
        raise MessageUnknownError(
            "the checkpoint that is to prove the message does not have it yet",
            size=by.size,
            needed=tree.size,
        )
    if tree.size != by.size or tree.root() != by.root:
        raise CorruptLogError("another tree of that size was signed once", size=by.size)
    return by.note
