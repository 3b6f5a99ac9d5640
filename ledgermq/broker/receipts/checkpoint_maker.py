"""Checkpoint maker: goes through the queues of topics with receipts, and signs what it has found.

It knows nothing of its own: where it begins, and the tree up to there, are told with each order, so
any member goes on where another one has ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.formats.receipts.checkpoint import (
    STRETCH_BYTES_MAX,
    STRETCHES_MAX,
    ReceiptCheckpoint,
    SignedHead,
    SignedStretch,
    hash_of,
    peaks_as_json,
)
from ledgermq.formats.receipts.merkle_tree import Peaks
from ledgermq.formats.receipts.signed_note import NoteSigner
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.counters import Counts, ReceiptsCounter
from ledgermq.ipc.orders import MakeCheckpoint
from ledgermq.model.errors import ConfigError, ProtocolError, StorageError
from ledgermq.model.names.queue_name import QueueName

UNITS_MAX = 4_096
"""Messages of a queue that are looked at together."""


class CheckpointTask(NamedTuple):
    """What is wanted.

    Attributes:
        begin, until: positions of the log: up to the first one it is in the tree, and no more than
            up to the other one is to be; a ``begin`` of 0 is where the log begins.
        renew: a checkpoint is made also where nothing has come.
        before: the tree.
        topics: those with receipts.
    """

    begin: int
    until: int
    renew: bool
    before: Peaks
    topics: tuple[str, ...]

    def order(self, number: int) -> MakeCheckpoint:
        """The order for it."""
        content = {"before": peaks_as_json(self.before), "topics": self.topics}
        text = json.dumps(content).encode()
        return MakeCheckpoint(number, self.begin, self.until, self.renew, text)

    @classmethod
    def of(cls, order: MakeCheckpoint) -> CheckpointTask:
        """What an order wants.

        Raises:
            ProtocolError: it cannot be read.
        """
        try:
            content: Mapping[str, Any] = json.loads(order.content)
            size, hashes = content["before"]
            before = Peaks(size, [hash_of(one) for one in hashes])
            topics = tuple(str(one) for one in content["topics"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                "order of a checkpoint cannot be read", reason=str(error)
            ) from error
        return cls(order.begin, order.until, bool(order.renew), before, topics)


class CheckpointFound(NamedTuple):
    """What has come of a task.

    Attributes:
        end: position up to which the log was gone through.
        is_behind: there is more before ``until``.
        checkpoint: None: nothing has come.
        behind_ms: how old the oldest message is that it has gone through.
    """

    end: int
    is_behind: bool
    checkpoint: ReceiptCheckpoint | None
    behind_ms: int = 0


class CheckpointMaker:
    """Owned by the process of receipts."""

    def __init__(
        self,
        store: ReadableStore,
        signer: NoteSigner,
        counts: Counts,
        now_ms: Callable[[], int],
        sign_of_life: Callable[[], None],
    ) -> None:
        """``now_ms`` gives the time that is signed, epoch ms."""
        self._store = store
        self._signer = signer
        self._counts = counts
        self._now_ms = now_ms
        self._sign_of_life = sign_of_life
        # Where each queue goes on from the position ``_at`` on.
        self._at = -1
        self._next: dict[QueueName, int] = {}

    def make(self, task: CheckpointTask) -> CheckpointFound:
        """Go through what has come, and sign it.

        Raises:
            ConfigError: topics with receipts have too many queues.
            CorruptLogError, StorageError, NotLeaderError: the store cannot be read, or not yet.
        """
        store = self._store
        store.look()
        until = min(task.until, store.position)
        begin = max(task.begin, store.log.first_position)
        if task.begin != self._at:
            self._next.clear()
        self._at = -1
        firsts = self._firsts(task.topics, begin, until)
        end, stored_ms = max(until, task.begin), 0
        if firsts:
            oldest = min(firsts.values())
            end = min(end, oldest + STRETCH_BYTES_MAX)
            stored_ms = self._stored_ms(oldest)
        stretches: list[SignedStretch] = []
        for queue, position in firsts.items():
            if position < end:
                stretches.append(self._stretch(queue, end))
        self._at = end
        checkpoint = None
        if stretches or task.renew:
            checkpoint = self._signed(task, end, tuple(stretches))
        behind_ms = max(0, self._now_ms() - stored_ms) if stored_ms else 0
        self._counts[ReceiptsCounter.POSITION] = end
        self._counts[ReceiptsCounter.BEHIND_MS] = behind_ms
        return CheckpointFound(end, end < until, checkpoint, behind_ms)

    def _signed(
        self, task: CheckpointTask, end: int, stretches: tuple[SignedStretch, ...]
    ) -> ReceiptCheckpoint:
        at_ms = self._now_ms()
        made = ReceiptCheckpoint(task.begin, end, task.before, stretches, "")
        after = made.after()
        head = SignedHead.signed(self._signer, after.size, after.root(), at_ms=at_ms, position=end)
        counts = self._counts
        counts[ReceiptsCounter.CHECKPOINT_AT] = at_ms // 1_000
        counts[ReceiptsCounter.TREE_SIZE] = after.size
        counts[ReceiptsCounter.CHECKPOINTS] += 1
        return made._replace(note=head.note)

    def _firsts(self, topics: Sequence[str], begin: int, until: int) -> dict[QueueName, int]:
        """Queues with something between two positions, and where the first of it is."""
        queues = [QueueName(topic, one) for topic in topics for one in self._store.queue_ids(topic)]
        if len(queues) > STRETCHES_MAX:
            raise ConfigError(
                "topics with receipts have too many queues", queues=len(queues), limit=STRETCHES_MAX
            )
        firsts: dict[QueueName, int] = {}
        for queue in queues:
            first, end, _ = self._store.bounds(queue)
            offset = self._next.get(queue, -1)
            if not first <= offset <= end:
                offset = self._since(queue, begin, first, end)
            self._next[queue] = offset
            if offset < end and (position := self._position(queue, offset)) < until:
                firsts[queue] = position
        return firsts

    def _since(self, queue: QueueName, begin: int, first: int, end: int) -> int:
        """Offset of the first message of a queue that is at ``begin`` or behind it."""
        while first < end:
            middle = (first + end) // 2
            if self._position(queue, middle) < begin:
                first = middle + 1
            else:
                end = middle
        return first

    def _position(self, queue: QueueName, offset: int) -> int:
        units = self._store.units(queue, offset, 1)
        if units is None or len(units) == 0:
            raise StorageError("messages were deleted meanwhile", queue=str(queue), offset=offset)
        return int(units["position"][0])

    def _stored_ms(self, position: int) -> int:
        """When the message at a position was stored, epoch ms."""
        record = self._store.record_at(position)
        if record is None:
            raise StorageError("messages were deleted meanwhile", position=position)
        return decode_message(record).store_timestamp

    def _stretch(self, queue: QueueName, end: int) -> SignedStretch:
        """The messages of a queue that are before a position, from where it goes on."""
        store, counts = self._store, self._counts
        tree = Peaks()
        first = at = self._next[queue]
        queue_end = store.bounds(queue).end
        while at < queue_end:
            units = store.units(queue, at, min(UNITS_MAX, queue_end - at))
            if units is None or len(units) == 0:
                raise StorageError("messages were deleted meanwhile", queue=str(queue), offset=at)
            positions, sizes = units["position"].astype("i8"), units["size"].astype("i8")
            wanted = int((positions < end).sum())
            taken = 0
            while taken < wanted:
                parts = store.records(positions[taken:wanted], sizes[taken:wanted])
                if parts is None:
                    raise StorageError(
                        "messages were deleted meanwhile", queue=str(queue), offset=at + taken
                    )
                tree.extend(parts.payload, parts.starts, parts.sizes)
                taken += len(parts.starts)
                counts[ReceiptsCounter.BYTES] += parts.size
                self._sign_of_life()
            at += wanted
            if wanted < len(units):
                break
        self._next[queue] = at
        counts[ReceiptsCounter.MESSAGES] += tree.size
        return SignedStretch(*queue, first, at, tree.root())
