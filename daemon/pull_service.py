"""Answers to pulls: from the store at once, or held until the queue grows or the time ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ledgermq.broker.holds import Hold, Holds, QueueName
from ledgermq.broker.pull_rules import QueueBounds, judge_offset, select
from ledgermq.daemon.readable_store import ReadableStore
from ledgermq.model.errors import LedgerError
from ledgermq.wire.pull_frame import Pull, PullStatus, encode_pulled

SCAN_STEP_UNITS = 4_096
SCANNED_UNITS_MAX = 65_536
"""Units that one pull by tags looks at before it says how far it came."""

_VAIN = (PullStatus.NO_MATCHED_MESSAGE, PullStatus.MESSAGE_WAS_REMOVING)
"""By whether the last unit that was looked at is that of a removed message."""

HELD_QUEUES_PER_TURN = 512
"""Queues looked at in one turn for those who wait, so that the loop comes round."""

Client = bytes
Payload = bytes | memoryview
CheckQueue = Callable[[QueueName], None]


class Answer(NamedTuple):
    """A PULLED with ``messages`` records for one client, or why there is none."""

    client: Client
    request_id: int
    head: bytes = b""
    payload: Payload = b""
    messages: int = 0
    error: LedgerError | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A pull that waits; ``scanned_to`` is how far its tags were looked for in vain.

    ``status`` is what the last message that was looked at is a case of.
    """

    pull: Pull
    scanned_to: int
    status: PullStatus = PullStatus.NO_MATCHED_MESSAGE


class PullService:
    """Looks up what is pulled, and keeps the holds. It knows no socket.

    Invariant: a pull is answered once, or held; a hold is answered once, or cancelled.
    """

    def __init__(
        self, store: ReadableStore, holds: Holds[Client, Held], check_queue: CheckQueue
    ) -> None:
        self._store = store
        self._holds = holds
        self._check_queue = check_queue
        self._unlooked: deque[QueueName] = deque()

    @property
    def held(self) -> int:
        """Pulls held now."""
        return len(self._holds)

    def next_deadline_ms(self) -> int | None:
        """When the next hold ends; ``None`` when nothing is held."""
        return self._holds.next_deadline_ms()

    def is_behind(self) -> bool:
        """Whether queues with holds wait to be looked at."""
        return bool(self._unlooked) or (len(self._holds) > 0 and self._store.has_moved())

    def pull(self, client: Client, pull: Pull, now_ms: int) -> Answer | None:
        """The answer to ``pull``, ``None`` when it is held.

        Raises:
            TopicUnknownError, NoPermissionError: there is no such queue, or not for reading.
            BusyError: as many pulls are held as the settings allow.
            NotLeaderError: the node is starting.
            CorruptLogError: the store is not what it should be at this place.
        """
        queue = QueueName(pull.topic, pull.queue_id)
        self._check_queue(queue)
        bounds = self._store.bounds(queue)
        held = Held(pull, pull.queue_offset)
        looked = self._look(client, held, queue, bounds, may_hold=pull.hold_ms > 0)
        if isinstance(looked, Answer):
            return looked
        self._holds.add(Hold(client, queue, now_ms + pull.hold_ms, looked))
        return None

    def cancel(self, client: Client) -> int:
        """Forget what ``client`` waits for; how many pulls that were."""
        return self._holds.cancel(client)

    def notice_growth(self) -> None:
        """The dispatched position has moved: every queue that somebody waits for is due a look."""
        self._unlooked = deque(self._holds.queues())

    def grown(self) -> Iterator[Answer]:
        """Answers to holds whose queues have grown, from a bounded number of queues."""
        for _ in range(min(len(self._unlooked), HELD_QUEUES_PER_TURN)):
            queue = self._unlooked.popleft()
            waiting = self._holds.peek(queue)
            try:
                bounds = self._store.bounds(queue)
                if all(self._still_waits(hold.request, bounds) for hold in waiting):
                    continue
            except LedgerError as error:
                for hold in self._holds.take(queue):
                    yield _refusal(hold, error)
                continue
            for hold in self._holds.take(queue):
                answer = self._look_again(hold, bounds)
                if answer is not None:
                    yield answer

    def due(self, now_ms: int) -> Iterator[Answer]:
        """Answers to holds whose time has ended."""
        for hold in self._holds.take_due(now_ms):
            yield self._end(hold)

    def end_all(self) -> Iterator[Answer]:
        """Answers to all holds: the node stops."""
        for hold in self._holds.take_all():
            yield self._end(hold)

    @staticmethod
    def _still_waits(held: Held, bounds: QueueBounds) -> bool:
        verdict = judge_offset(held.scanned_to, bounds)
        return verdict is not None and verdict.may_hold

    def _look_again(self, hold: Hold[Client, Held], bounds: QueueBounds) -> Answer | None:
        """The answer for a queue that has grown, ``None`` when the hold goes on."""
        try:
            looked = self._look(hold.client, hold.request, hold.queue, bounds, may_hold=True)
        except LedgerError as error:
            return _refusal(hold, error)
        if isinstance(looked, Answer):
            return looked
        self._holds.add(Hold(hold.client, hold.queue, hold.deadline_ms, looked))
        return None

    def _end(self, hold: Hold[Client, Held]) -> Answer:
        """The answer to a hold that has waited long enough."""
        try:
            bounds = self._store.bounds(hold.queue)
            looked = self._look(hold.client, hold.request, hold.queue, bounds, may_hold=False)
        except LedgerError as error:
            return _refusal(hold, error)
        assert isinstance(looked, Answer)
        return looked

    def _look(
        self, client: Client, held: Held, queue: QueueName, bounds: QueueBounds, *, may_hold: bool
    ) -> Answer | Held:
        """What there is for a pull now: an answer, or what to wait with."""
        pull = held.pull
        verdict = judge_offset(held.scanned_to, bounds)
        if verdict is None:
            found = self._scan(client, held, queue, bounds)
            if isinstance(found, Answer):
                return found
            held = found
            at_end = held.scanned_to >= bounds.end
            if at_end and may_hold:
                return held
            return _nothing(client, pull, held.status, held.scanned_to, bounds)
        if verdict.may_hold:
            if may_hold:
                return held
            if held.scanned_to != pull.queue_offset:
                return _nothing(client, pull, held.status, held.scanned_to, bounds)
        return _nothing(client, pull, verdict.status, verdict.next_offset, bounds)

    def _scan(
        self, client: Client, held: Held, queue: QueueName, bounds: QueueBounds
    ) -> Answer | Held:
        """The messages found, or how far they were looked for in vain."""
        pull = held.pull
        hashes = np.array(pull.tag_hashes, np.int64)
        step = SCAN_STEP_UNITS if pull.tag_hashes else pull.messages_max
        offset, status = held.scanned_to, held.status
        stop = min(bounds.end, offset + SCANNED_UNITS_MAX)
        store = self._store
        while offset < stop:
            units = store.units(queue, offset, step)
            if units is None:
                if offset == held.scanned_to:
                    status, offset = PullStatus.OFFSET_FOUND_NULL, store.next_file(queue, offset)
                return _nothing(client, pull, status, offset, bounds)
            positions = units["position"].astype(np.int64)
            sizes = units["size"].astype(np.int64)
            chosen, scanned, ends_removed, looked_at = select(
                positions,
                sizes,
                units["tags"],
                tag_hashes=hashes,
                count_max=pull.messages_max,
                size_max=pull.bytes_max,
                first_position=store.log.first_position,
                disk_below=store.disk_below,
                limits=store.limits,
            )
            if chosen.size:
                parts = store.records(positions[chosen], sizes[chosen])
                if parts is None:
                    # Removed since, and known to be: the same units are looked at again.
                    continue
                count = len(parts.starts)
                # What did not fit into the part is where the client goes on.
                taken = scanned if count == chosen.size else int(chosen[count])
                head = encode_pulled(
                    pull.request_id,
                    PullStatus.FOUND,
                    next_offset=offset + taken,
                    begin=bounds.first,
                    end=bounds.end,
                    starts=parts.starts.tobytes(),
                    sizes=parts.sizes.tobytes(),
                    suggested=store.suggested(looked_at),
                    version=pull.version,
                )
                return Answer(client, pull.request_id, head, parts.payload, count)
            status = _VAIN[ends_removed]
            offset += scanned
        return Held(pull, offset, status)


def _nothing(
    client: Client, pull: Pull, status: PullStatus, next_offset: int, bounds: QueueBounds
) -> Answer:
    head = encode_pulled(
        pull.request_id,
        status,
        next_offset=next_offset,
        begin=bounds.first,
        end=bounds.end,
        version=pull.version,
    )
    return Answer(client, pull.request_id, head)


def _refusal(hold: Hold[Client, Held], error: LedgerError) -> Answer:
    return Answer(hold.client, hold.request.pull.request_id, error=error)
