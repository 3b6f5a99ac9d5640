"""Plan of one command of a share group in a topic: what is settled, given back, handed out.

Made from the table as it is, which stays so; what was planned before in the same plan counts. No
clock and no store here: whoever plans says what time it is, and which messages there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ledgermq.rules.consumers.share_handles import ShareHandle
from ledgermq.rules.consumers.share_order import (
    AHEAD_MAX,
    WAITS_PER_COMMAND_MAX,
    KeyLines,
    ShareOrder,
)
from ledgermq.rules.tables.share_changes import WAITS, OffsetSpan, Run, ShareChanged
from ledgermq.rules.tables.share_queue import ShareQueue
from ledgermq.rules.tables.table_changes import Change, OffsetsSet
from ledgermq.verbs.shares import DONE, OVER, SETTLED

DUE_RUNS_MAX = 1_024
"""Runs that are due that one look at a queue finds."""


class Stand(NamedTuple):
    """How one message stands that is not settled, as ``Run`` has it."""

    until: int
    delivery: int
    mark: int


class TakenPlace(NamedTuple):
    """A message of the topic, or several that follow one another, and how often it was handed
    out.
    """

    queue_id: int
    offset: int
    delivery: int
    length: int = 1

    @property
    def offsets(self) -> range:
        """Queue offsets of the messages."""
        return range(self.offset, self.offset + self.length)


class Fresh(NamedTuple):
    """What of the messages that were never handed out is wanted.

    Attributes:
        wanted: queue offsets, ascending.
        end: all below was looked at: what is not wanted is settled.
    """

    wanted: Sequence[int]
    end: int


Choose = Callable[[int, int, int], Fresh]
"""What is wanted of a queue, from an offset on, of at most so many."""


class LookedAt(NamedTuple):
    """A message that nobody has looked at yet, for a group that goes by keys.

    Attributes:
        size: of its record.
        key: None: it has none, and waits for no other.
        is_wanted: no filter leaves it out.
    """

    offset: int
    size: int
    key: str | None
    is_wanted: bool


class _Draft:
    """One queue: as the table has it, and what is planned.

    Attributes:
        lines: its messages by their keys; None: the group does not go by them.
        changed: how messages are to stand; None: settled.
        dead: those of them that are settled only behind their dead letters.
        behind: how others are to stand behind these, which have waited for them.
        freed: messages that wait no more, and that nobody has taken yet.
        next: first offset that is not looked at.
        waiting: messages that wait for others.
    """

    def __init__(self, queue: ShareQueue, lines: KeyLines | None, *, is_new: bool) -> None:
        self.queue = queue
        self.lines = lines
        self.is_new = is_new
        self.changed: dict[int, Stand | None] = {}
        self.dead: set[int] = set()
        self.behind: dict[int, Stand] = {}
        self.freed: dict[int, None] = {}
        self.next = queue.next
        self.waiting = queue.waiting

    def stand(self, offset: int) -> Stand | None:
        """How a message stands; None: it is settled, or was never handed out."""
        if offset in self.changed:
            return self.changed[offset]
        run = self.queue.find(offset)
        return None if run is None else Stand(run.until, run.delivery, run.mark)

    def is_settled(self, offset: int) -> bool:
        """Whether a message is done with, dead letters among them."""
        return offset < self.next and self.stand(offset) is None

    def is_behind(self, offset: int) -> bool:
        """Whether another message of its key is to be settled before this one is handed out."""
        if self.lines is None:
            return False
        first = self.lines.first_of_its_key(offset, self.is_settled)
        return first is not None and first < offset

    def wait(self, offset: int, delivery: int) -> None:
        """Have a message wait for others of its key."""
        self.changed[offset] = Stand(WAITS, delivery, 0)
        self.waiting += 1

    def free(self, offset: int, now_ms: int) -> None:
        """Have a message wait no more."""
        stand = self.stand(offset)
        assert stand is not None, offset
        self.changed[offset] = stand._replace(until=now_ms)
        self.freed[offset] = None
        self.waiting -= 1

    def settle(self, offset: int, now_ms: int, *, is_dead: bool = False) -> None:
        """Have a message done with, and the next of its key wait no more: if it is so behind a dead
        letter, not before that is stored.
        """
        self.changed[offset] = None
        if is_dead:
            self.dead.add(offset)
        if self.lines is None:
            return
        first = self.lines.first_of_its_key(offset, self.is_settled)
        stand = None if first is None else self.stand(first)
        if first is None or stand is None or stand.until != WAITS or first in self.behind:
            return
        if is_dead:
            self.behind[first] = stand._replace(until=now_ms)
        else:
            self.free(first, now_ms)

    def low(self, *, with_dead: bool) -> int:
        """All below is settled, with the dead letters or without."""
        left = self.dead if not with_dead else ()
        changed = self.changed
        for run in self.queue.runs:
            for offset in range(run.first, run.end):
                if offset not in changed or changed[offset] is not None or offset in left:
                    return offset
        # Those in no run yet, which are handed out for the first time.
        end = self.queue.next
        above = (
            offset
            for offset, stand in changed.items()
            if offset >= end and (stand is not None or offset in left)
        )
        return min(above, default=self.next)

    def runs(self) -> tuple[Run, ...]:
        """What is not settled, and stands otherwise."""
        return tuple(_runs(sorted(self.changed.items())))

    def runs_behind(self) -> tuple[Run, ...]:
        """What stands otherwise once dead letters are stored."""
        return tuple(_runs(sorted(self.behind.items())))

    def settled(self) -> tuple[OffsetSpan, ...]:
        """What is, without dead letters."""
        offsets = [at for at, stand in self.changed.items() if stand is None]
        spans = list(_spans(sorted(set(offsets) - self.dead)))
        last = max([at for at, stand in self.changed.items() if stand is not None], default=-1)
        passed = max(last + 1, self.queue.next)
        if self.next > passed:
            # What is not wanted behind the last one that is; that before lies in gaps.
            spans.append(OffsetSpan(passed, self.next - passed))
        return tuple(spans)

    @property
    def is_changed(self) -> bool:
        """Whether something but dead letters is planned."""
        alive = any(offset not in self.dead for offset in self.changed)
        return alive or self.is_new or self.next > self.queue.next


class SharePlan:
    """What one command is to say.

    Attributes:
        now_ms: epoch ms.
        room: so many messages more may be not settled.
        bounds: of queues, as far as whoever plans has asked for them.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        queues: Mapping[int, ShareQueue],
        committed: Mapping[int, int],
        *,
        now_ms: int,
        room: int,
        deliveries_max: int,
        order: ShareOrder | None = None,
        room_to_wait: int = 0,
    ) -> None:
        """Nothing is planned.

        Args:
            queues: of the table.
            committed: the group's offsets; where one is another than low, somebody has set it.
            deliveries_max: what was handed out so often is handed out no more.
            order: the group hands out the messages of a key one after another, and has read the
                keys of all that is not settled.
            room_to_wait: so many messages may be passed over because others of their key are not
                settled.
        """
        self.group = group
        self.topic = topic
        self.now_ms = now_ms
        self.room = room
        self.bounds: dict[int, range] = {}
        self._queues = queues
        self._committed = committed
        self._deliveries_max = deliveries_max
        self._order = order
        self._left_to_wait = min(room_to_wait, WAITS_PER_COMMAND_MAX)
        self._drafts: dict[int, _Draft] = {}
        self._resets: dict[int, int] = {}

    @property
    def is_ordered(self) -> bool:
        """Whether the messages of a key are handed out one after another."""
        return self._order is not None

    def outcome(self, handle: ShareHandle) -> str:
        """What can be done for a handle of this group and topic: ``DONE``: anything."""
        draft = self._known(handle.queue_id)
        return OVER if draft is None else self._outcome_of(draft, handle, handle.offset)

    def _outcome_of(self, draft: _Draft, handle: ShareHandle, offset: int) -> str:
        stand = draft.stand(offset)
        if stand is None:
            return SETTLED if offset < draft.next else OVER
        is_same = (stand.delivery, stand.mark) == (handle.delivery, handle.mark)
        return DONE if is_same else OVER

    def accept(self, handle: ShareHandle) -> str:
        """All messages that a handle names, and that it may settle, are done with; what
        ``outcome`` says of them, of several the worst.
        """
        draft = self._known(handle.queue_id)
        if draft is None:
            return OVER
        found = {
            self._accept_of(draft, handle, part) for part in self._alike(draft, handle)
        }  # fmt: skip
        return next(one for one in (OVER, DONE, SETTLED) if one in found)

    def _alike(self, draft: _Draft, handle: ShareHandle) -> Iterator[range]:
        """The messages of a handle, in parts that stand alike and are not planned for."""
        at = handle.offset
        while at < handle.end:
            run = draft.queue.find(at)
            part = range(at, at + 1 if run is None else min(run.end, handle.end))
            if len(part) > 1 and not draft.changed.keys().isdisjoint(part):
                part = range(at, at + 1)
            yield part
            at = part.stop

    def _accept_of(self, draft: _Draft, handle: ShareHandle, part: range) -> str:
        outcome = self._outcome_of(draft, handle, part.start)
        if outcome == DONE:
            if draft.lines is None:
                draft.changed.update(dict.fromkeys(part))
            else:
                for offset in part:
                    draft.settle(offset, self.now_ms)
        return outcome

    def reject(self, handle: ShareHandle) -> None:
        """The message is done with behind its dead letter; ``outcome`` is ``DONE``, as of all that
        follows.
        """
        self._draft(handle).settle(handle.offset, self.now_ms, is_dead=True)

    def extend(self, handle: ShareHandle, delay_ms: int) -> int:
        """It stays with the delivery; until when, epoch ms."""
        until = self.now_ms + delay_ms
        self._draft(handle).changed[handle.offset] = Stand(until, handle.delivery, handle.mark)
        return until

    def keep(self, place: TakenPlace, mark: int, until: int) -> list[TakenPlace]:
        """Have messages stay with their delivery until then, as far as they still are with it;
        those that are.
        """
        draft, kept = self._known(place.queue_id), list[TakenPlace]()
        if draft is None:
            return kept
        queue_id, offset, delivery, length = place
        handle = ShareHandle(self.group, self.topic, queue_id, offset, delivery, mark, length)
        for part in self._alike(draft, handle):
            if self._outcome_of(draft, handle, part.start) == DONE:
                draft.changed.update(dict.fromkeys(part, Stand(until, delivery, mark)))
                kept.append(TakenPlace(queue_id, part.start, delivery, len(part)))
        return kept

    def release(self, handle: ShareHandle, delay_ms: int, *, counts: bool = True) -> int:
        """It is handed out again later; from when on, epoch ms.

        Args:
            counts: the delivery counts.
        """
        until = self.now_ms + delay_ms
        delivery = handle.delivery - (not counts)
        self._draft(handle).changed[handle.offset] = Stand(until, delivery, 0)
        return until

    def bury(self, place: TakenPlace) -> None:
        """A message that ``worn_out`` has found is settled behind its dead letter."""
        self._drafts[place.queue_id].settle(place.offset, self.now_ms, is_dead=True)

    def worn_out(self, queue_id: int, first: int, count_max: int) -> list[TakenPlace]:
        """Messages that are due, and were handed out too often; what is below ``first``, which the
        queue does not have any more, is settled.
        """
        draft = self._known(queue_id)
        if draft is None:
            return []
        found: list[TakenPlace] = []
        for offset in _gone_waiting(draft.queue, first):
            if offset not in draft.changed:
                draft.changed[offset] = None
                draft.waiting -= 1
        for run in self._due_runs(draft, count_max):
            for offset in range(run.first, min(run.end, first)):
                draft.settle(offset, self.now_ms)
            if run.delivery >= self._deliveries_max:
                offsets = range(max(run.first, first), run.end)
                left = (offset for offset in offsets if offset not in draft.changed)
                found += (TakenPlace(queue_id, offset, run.delivery) for offset in left)
            if len(found) >= count_max:
                break
        return found[:count_max]

    def due(self, queue_id: int, count_max: int) -> list[TakenPlace]:
        """Messages that are to be handed out again now, those that are due longest first."""
        draft = self._known(queue_id)
        found: list[TakenPlace] = []
        if draft is None:
            return found
        for run in self._due_runs(draft, count_max):
            if run.delivery >= self._deliveries_max:
                continue
            for offset in range(run.first, run.end):
                if offset in draft.changed:
                    continue
                if draft.is_behind(offset):
                    # The group goes by keys since it was handed out.
                    draft.wait(offset, run.delivery)
                    continue
                found.append(TakenPlace(queue_id, offset, run.delivery + 1))
                if len(found) == count_max:
                    return found
        for offset in draft.freed:
            if len(found) == count_max:
                break
            stand = draft.stand(offset)
            # One that was handed out too often is found as worn out by the next plan.
            if stand is not None and stand.delivery < self._deliveries_max:
                found.append(TakenPlace(queue_id, offset, stand.delivery + 1))
        return found

    def _due_runs(self, draft: _Draft, count_max: int) -> list[Run]:
        """Enough of them to find ``count_max`` messages that nothing is planned for."""
        count = min(count_max + len(draft.changed), DUE_RUNS_MAX)
        return draft.queue.due(self.now_ms, count)

    def take(self, places: Sequence[TakenPlace], until: int, mark: int) -> None:
        """Hand these out again, which ``due`` has found."""
        for place in places:
            draft = self._drafts[place.queue_id]
            before = draft.stand(place.offset)
            if before is not None and before.until == WAITS:
                draft.waiting -= 1
            draft.changed[place.offset] = Stand(until, place.delivery, mark)
            draft.freed.pop(place.offset, None)

    def is_nowhere(self, queue_id: int) -> bool:
        """Whether the group has not begun in a queue."""
        return not any(queue_id in of for of in (self._queues, self._committed, self._drafts))

    def low(self, queue_id: int) -> int | None:
        """Queue offset below which the group has settled all of a queue; None: it is nowhere."""
        if queue_id in self._committed:
            return self._committed[queue_id]
        return None if self.is_nowhere(queue_id) else self._at(queue_id, 0).queue.low

    def begin(self, queue_id: int, offset: int) -> None:
        """Have the group begin there in a queue in which it is nowhere yet."""
        self._at(queue_id, offset)

    def take_fresh(
        self, queue_id: int, bounds: range, count_max: int, choose: Choose, stand: Stand
    ) -> list[TakenPlace]:
        """Hand out messages for the first time.

        Args:
            bounds: of the queue; where it begins, there the group does that is nowhere.
            choose: says which; called once, unless there is nothing.
            stand: how they stand then.
        """
        draft = self._at(queue_id, bounds.start)
        first = max(draft.next, bounds.start)
        count = min(bounds.stop - first, count_max, self.room)
        if count <= 0:
            return []
        wanted, looked_at = choose(queue_id, first, count)
        draft.changed.update(dict.fromkeys(wanted, stand))
        draft.next = max(draft.next, looked_at)
        self.room -= len(wanted)
        return [
            TakenPlace(queue_id, span.first, stand.delivery, span.length) for span in _spans(wanted)
        ]

    def take_fresh_in_order(
        self,
        queue_id: int,
        bounds: range,
        count_max: int,
        looked_at: Callable[[int], Iterable[LookedAt]],
        *,
        has_room: Callable[[int], bool],
        stand: Stand,
        by_key: bool = True,
    ) -> list[TakenPlace]:
        """Hand out messages for the first time, of each key the first one alone, and only where no
        other of the key is not settled; those that are passed over wait. What is passed over in a
        queue is bounded, and nothing is looked at behind it.

        Args:
            bounds: as of ``take_fresh``.
            looked_at: the messages from an offset on, a bounded number.
            has_room: whether the answer has room for a record of that size, which it takes then.
            stand: how they stand then.
            by_key: false: all as they come, of whichever key.
        """
        draft = self._at(queue_id, bounds.start)
        assert draft.lines is not None, queue_id
        first = max(draft.next, bounds.start)
        taken: list[TakenPlace] = []
        if first >= bounds.stop or (by_key and draft.waiting >= AHEAD_MAX):
            return taken
        draft.next = first
        for message in looked_at(first):
            offset = message.offset
            if message.is_wanted and (self.room <= 0 or count_max <= 0):
                break
            if message.is_wanted:
                is_next = draft.lines.first(message.key, draft.is_settled) is None
                if by_key and not is_next:
                    if self._left_to_wait <= 0 or draft.waiting >= AHEAD_MAX:
                        break
                    draft.wait(offset, 0)
                    self._left_to_wait -= 1
                elif has_room(message.size):
                    draft.changed[offset] = stand
                    taken.append(TakenPlace(queue_id, offset, stand.delivery))
                    count_max -= 1
                else:
                    break
                draft.lines.add(offset, message.key)
                self.room -= 1
            draft.next = offset + 1
        return taken

    def is_held(self, queue_id: int) -> bool:
        """Whether a queue's messages are to wait for others of it, where it goes by its order."""
        draft = self._known(queue_id)
        if draft is None:
            return False
        planned = draft.changed.values()
        if any(one is not None and self.now_ms < one.until != WAITS for one in planned):
            return True
        runs = (run for run in draft.queue.runs if self.now_ms < run.until != WAITS)
        return any(
            offset not in draft.changed for run in runs for offset in range(run.first, run.end)
        )

    def again_in_order(self, queue_id: int, count_max: int) -> tuple[list[TakenPlace], bool]:
        """What is to be handed out again of a queue of which nothing is held, the first of it, what
        waits for others of its key with them; and whether that is all that is not settled.
        """
        draft = self._known(queue_id)
        found: list[TakenPlace] = []
        for run in () if draft is None else draft.queue.runs:
            for offset in range(run.first, run.end):
                stand = draft.stand(offset) if draft is not None else None
                if stand is None:
                    continue
                if len(found) == count_max or stand.delivery >= self._deliveries_max:
                    # A dead letter is made of that first.
                    return found, False
                found.append(TakenPlace(queue_id, offset, stand.delivery + 1))
        return found, True

    def free_waiting(self, queue_id: int, count_max: int) -> None:
        """Have what need not wait for others of its key wait no more: where the group goes by keys
        the first of each; else all, at most so many at once.
        """
        draft = self._known(queue_id)
        if draft is None or not draft.waiting:
            return
        lines = draft.lines
        if lines is None:
            waiting = (run for run in draft.queue.runs if run.until == WAITS)
            each = (offset for run in waiting for offset in range(run.first, run.end))
            for offset in list(islice(each, count_max)):
                draft.free(offset, self.now_ms)
        elif not lines.is_checked:
            for offset in lines.firsts(draft.is_settled):
                stand = draft.stand(offset)
                if stand is not None and stand.until == WAITS:
                    draft.free(offset, self.now_ms)

    def has_fresh(self, queue_id: int, bounds: range) -> bool:
        """Whether a queue has messages that were never handed out."""
        return self._at(queue_id, bounds.start).next < bounds.stop

    def changes(self) -> list[Change]:
        """What the command has to say; none where nothing was planned."""
        found: list[Change] = []
        if self._resets:
            found.append(OffsetsSet(self.group, self.topic, dict(self._resets)))
        changed = {at: draft for at, draft in self._drafts.items() if draft.is_changed}
        if changed:
            found.append(
                ShareChanged(
                    self.group,
                    self.topic,
                    {at: draft.low(with_dead=False) for at, draft in changed.items()},
                    {at: runs for at, draft in changed.items() if (runs := draft.runs())},
                    {at: spans for at, draft in changed.items() if (spans := draft.settled())},
                )
            )
        dead = {at: draft for at, draft in self._drafts.items() if draft.dead}
        if dead:
            found.append(
                ShareChanged(
                    self.group,
                    self.topic,
                    {at: draft.low(with_dead=True) for at, draft in dead.items()},
                    {at: runs for at, draft in dead.items() if (runs := draft.runs_behind())},
                    {at: tuple(_spans(sorted(draft.dead))) for at, draft in dead.items()},
                    is_behind=True,
                )
            )
        return found

    def _draft(self, handle: ShareHandle) -> _Draft:
        draft = self._known(handle.queue_id)
        assert draft is not None, handle
        return draft

    def _known(self, queue_id: int) -> _Draft | None:
        """The draft of a queue that the group has taken something of; None of others."""
        if queue_id not in self._drafts and queue_id not in self._queues:
            return None
        return self._at(queue_id, 0)

    def _at(self, queue_id: int, begin: int) -> _Draft:
        draft = self._drafts.get(queue_id)
        if draft is not None:
            return draft
        queue, committed = self._queues.get(queue_id), self._committed.get(queue_id)
        is_new = queue is None
        if queue is None:
            queue = ShareQueue(begin if committed is None else committed)
        elif committed is not None and committed != queue.low:
            # Set where no command tells it: in a file from outside, or put right by a leader.
            self._resets[queue_id] = committed
            queue = ShareQueue(committed)
        lines = None if self._order is None else self._order.lines(queue_id, queue)
        draft = self._drafts[queue_id] = _Draft(queue, lines, is_new=is_new)
        return draft


def _gone_waiting(queue: ShareQueue, first: int) -> Iterator[int]:
    """What waits below ``first``."""
    if not queue.waiting:
        return
    for run in queue.runs:
        if run.first >= first:
            return
        if run.until == WAITS:
            yield from range(run.first, min(run.end, first))


def _runs(changed: Sequence[tuple[int, Stand | None]]) -> Iterator[Run]:
    first = end = 0
    last: Stand | None = None
    for offset, stand in changed:
        if offset != end or stand != last:
            if last is not None:
                yield Run(first, end - first, *last)
            first, last = offset, stand
        end = offset + 1
    if last is not None:
        yield Run(first, end - first, *last)


def _spans(offsets: Sequence[int]) -> Iterator[OffsetSpan]:
    count = len(offsets)
    if count and offsets[-1] - offsets[0] == count - 1:
        # Mostly they are one.
        yield OffsetSpan(offsets[0], count)
        return
    start = 0
    for at in range(1, count + 1):
        if at == count or offsets[at] != offsets[at - 1] + 1:
            yield OffsetSpan(offsets[start], at - start)
            start = at
