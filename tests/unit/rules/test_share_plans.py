"""Plans of share groups beside a model that knows each message by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.rules.consumers.share_handles import ShareHandle, read_handle
from ledgermq.rules.consumers.share_order import AHEAD_MAX, ShareOrder
from ledgermq.rules.consumers.share_plans import Fresh, LookedAt, SharePlan, Stand, TakenPlace
from ledgermq.rules.state.state_commands import StateCommand, decode_command, encode_command
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.share_changes import WAITS, OffsetSpan, ShareChanged
from ledgermq.rules.tables.shares import ShareTable
from ledgermq.rules.tables.table_changes import Change, OffsetsSet
from ledgermq.verbs.shares import DONE, OVER, SETTLED

QUEUES = 2
DELIVERIES_MAX = 3
INVISIBLE_MS = 10


class Message(NamedTuple):
    """``state``: ``fresh``, ``out``, ``back`` or ``settled``."""

    state: str = "fresh"
    until: int = 0
    delivery: int = 0
    mark: int = 0


class Course:
    """A group, its table by commands, and what each message should be."""

    def __init__(
        self,
        seed: int,
        *,
        keeps: Callable[[int], bool] = lambda _offset: True,
        key_of: Callable[[int], str | None] | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.table, self.offsets = ShareTable(), GroupOffsets()
        self.now_ms = 1_000
        self.keeps, self.key_of = keeps, key_of
        self.order = ShareOrder()
        self.messages: dict[tuple[int, int], Message] = {}
        self.ends = dict.fromkeys(range(QUEUES), 0)
        self.first = dict.fromkeys(range(QUEUES), 0)
        self.handles: list[ShareHandle] = []
        self.dead: list[tuple[int, int]] = []
        self.place = 0

    def run(self, steps: int) -> None:
        acts = (self.send, self.command, self.command, self.command, self.wait, self.reset)
        for _ in range(steps):
            self.random.choices(acts, (3, 4, 4, 4, 3, 1))[0]()
            self.check()

    def send(self) -> None:
        queue = self.random.randrange(QUEUES)
        for _ in range(self.random.randint(1, 6)):
            self.messages[queue, self.ends[queue]] = Message()
            self.ends[queue] += 1

    def wait(self) -> None:
        self.now_ms += self.random.randint(0, 2 * INVISIBLE_MS)

    def reset(self) -> None:
        queue = self.random.randrange(QUEUES)
        to = self.random.randint(0, self.ends[queue])
        self.apply([OffsetsSet("g", "t", {queue: to})])
        known = self.table.queues("g", "t").get(queue)
        if known is not None and known.unsettled == 0 and known.next == to:
            for offset in range(self.ends[queue]):
                is_above = offset >= to
                self.messages[queue, offset] = Message("fresh" if is_above else "settled")
        elif known is None:
            for offset in range(to):
                self.messages[queue, offset] = Message("settled")
            for offset in range(to, self.ends[queue]):
                self.messages[queue, offset] = Message()

    def command(self) -> None:
        """Some settlements, and then some receives."""
        if self.key_of is not None and self.random.random() < 0.2:
            # Another leader.
            self.order = ShareOrder()
        if self.key_of is not None and self.random.random() < 0.3:
            self.abandon(self.plan())
        plan = self.plan()
        for _ in range(self.random.randint(0, 5)):
            if self.handles:
                handle = self.random.choice(self.handles)
                if self.random.random() < 0.4:
                    length = self.random.randint(1, 5)
                    self.accept_many(plan, handle._replace(length=length))
                else:
                    self.settle(plan, handle)
        for _ in range(self.random.randint(0, 2)):
            self.receive(plan)
        self.apply(plan.changes())
        self.order.note_checked()
        for at, message in self.messages.items():
            if message.until == WAITS and not self.is_behind(*at):
                self.messages[at] = message._replace(until=self.now_ms)

    def abandon(self, plan: SharePlan) -> None:
        """Plan what comes to nothing, for who wants everything."""
        assert self.key_of is not None
        key_of = self.key_of
        for handle in self.handles[-3:]:
            if plan.outcome(handle) == DONE:
                plan.accept(handle)
        for queue, end in self.ends.items():

            def look(first: int, end: int = end) -> Iterator[LookedAt]:
                return (LookedAt(at, 1, key_of(at), True) for at in range(first, end))

            plan.take(plan.due(queue, 3), self.now_ms + 5, 7)
            bounds, stand = range(self.first[queue], end), Stand(self.now_ms + 5, 1, 7)
            plan.take_fresh_in_order(
                queue, bounds, 3, look, has_room=lambda _size: True, stand=stand
            )

    def plan(self) -> SharePlan:
        queues, order = self.table.queues("g", "t"), None
        if self.key_of is not None:
            order = self.order
            while not order.read_keys(queues, self.keys, 7):
                pass
        plan = SharePlan(
            "g",
            "t",
            queues,
            self.offsets.offsets("g", "t"),
            now_ms=self.now_ms,
            room=1_000,
            deliveries_max=DELIVERIES_MAX,
            order=order,
            room_to_wait=1_000,
        )
        for queue in queues:
            plan.free_waiting(queue, 1_000)
        return plan

    def keys(self, _queue: int, offsets: list[int]) -> dict[int, str]:
        assert self.key_of is not None
        found = ((offset, self.key_of(offset)) for offset in offsets)
        return {offset: key for offset, key in found if key is not None}

    def settle(self, plan: SharePlan, handle: ShareHandle) -> None:
        at = handle.queue_id, handle.offset
        message = self.messages[at]
        told = plan.outcome(handle)
        if message.state == "settled":
            assert told == SETTLED
        elif self.is_with(message, handle):
            assert told == DONE
        else:
            assert told == OVER
        if told != DONE:
            return
        act = self.random.choice(("accept", "reject", "extend", "release", "return"))
        delay_ms = self.random.randint(0, 3 * INVISIBLE_MS)
        if act == "accept":
            plan.accept(handle)
            self.messages[at] = Message("settled")
        elif act == "reject":
            plan.reject(handle)
            self.messages[at] = Message("settled")
            self.dead.append(at)
        elif act == "extend":
            until = plan.extend(handle, delay_ms)
            assert until == self.now_ms + delay_ms
            self.messages[at] = message._replace(until=until)
        else:
            until = plan.release(handle, delay_ms, counts=act == "release")
            delivery = message.delivery - (act == "return")
            self.messages[at] = Message("back", until, delivery)

    @staticmethod
    def is_with(message: Message, handle: ShareHandle) -> bool:
        return message.state == "out" and message[2:] == (handle.delivery, handle.mark)

    def accept_many(self, plan: SharePlan, handle: ShareHandle) -> None:
        """A handle of several messages settles those of them that it may."""
        found = set()
        for offset in range(handle.offset, handle.end):
            message = self.messages.get((handle.queue_id, offset), Message())
            if self.is_with(message, handle):
                self.messages[handle.queue_id, offset] = Message("settled")
                found.add(DONE)
            else:
                found.add(SETTLED if message.state == "settled" else OVER)
        worst = next(outcome for outcome in (OVER, DONE, SETTLED) if outcome in found)
        assert plan.accept(handle) == worst

    def receive(self, plan: SharePlan) -> None:
        mark, want = self.random.randint(1, 2**32 - 1), self.random.randint(1, 8)
        until = self.now_ms + INVISIBLE_MS
        queue = self.random.randrange(QUEUES)
        for place in plan.worn_out(queue, self.first[queue], 5):
            message = self.messages[queue, place.offset]
            assert message.until <= self.now_ms and message.delivery >= DELIVERIES_MAX
            plan.bury(place)
            self.dead.append((queue, place.offset))
            self.messages[queue, place.offset] = Message("settled")
        again = plan.due(queue, want)
        plan.take(again, until, mark)
        for place in again:
            self.check_first(queue, place.offset)
            message = self.messages[queue, place.offset]
            is_freed = message.until == WAITS and self.key_of is not None
            assert message.state in ("out", "back")
            assert message.until <= self.now_ms or is_freed
            assert place.delivery == message.delivery + 1 <= DELIVERIES_MAX
            self.hand_out(place, until, mark)
        if len(again) == want:
            return
        bounds = range(self.first[queue], self.ends[queue])
        stand = Stand(until, 1, mark)
        if self.key_of is not None:
            self.take_in_order(plan, queue, bounds, want - len(again), stand)
            return
        for places in plan.take_fresh(queue, bounds, want - len(again), self.choose, stand):
            for offset in places.offsets:
                assert self.messages[queue, offset].state == "fresh"
                self.hand_out(TakenPlace(queue, offset, 1), until, mark)

    def take_in_order(
        self, plan: SharePlan, queue: int, bounds: range, count: int, stand: Stand
    ) -> None:
        assert self.key_of is not None
        key_of, looked_at = self.key_of, []

        def look(first: int) -> Iterator[LookedAt]:
            for offset in range(first, bounds.stop):
                looked_at.append(offset)
                yield LookedAt(offset, 10, key_of(offset), self.keeps(offset))

        room = iter([True] * count)
        taken = plan.take_fresh_in_order(
            queue, bounds, 100, look, has_room=lambda _size: next(room, False), stand=stand
        )
        waiting = [
            offset for offset in looked_at
            if (stood := plan._drafts[queue].stand(offset)) is not None and stood.until == WAITS
        ]  # fmt: skip
        for offset in sorted([*waiting, *(place.offset for place in taken)]):
            assert self.messages[queue, offset].state == "fresh"
            if offset in waiting:
                assert self.is_behind(queue, offset)
                self.messages[queue, offset] = Message("back", WAITS)
            else:
                self.check_first(queue, offset)
                self.hand_out(TakenPlace(queue, offset, 1), stand.until, stand.mark)
        for offset in looked_at:
            is_passed = offset < plan._drafts[queue].next and not self.keeps(offset)
            if is_passed and self.messages[queue, offset].state == "fresh":
                self.messages[queue, offset] = Message("settled")

    def is_behind(self, queue: int, offset: int) -> bool:
        key = None if self.key_of is None else self.key_of(offset)
        return key is not None and any(
            self.keeps(at)
            and self.key_of is not None
            and self.key_of(at) == key
            and self.messages[queue, at].state != "settled"
            for at in range(offset)
        )

    def check_first(self, queue: int, offset: int) -> None:
        assert not self.is_behind(queue, offset), (queue, offset)

    def choose(self, queue: int, first: int, count: int) -> Fresh:
        wanted = [offset for offset in range(first, first + count) if self.keeps(offset)]
        for offset in set(range(first, first + count)) - set(wanted):
            self.messages[queue, offset] = Message("settled")
        return Fresh(wanted, first + count)

    def hand_out(self, place: TakenPlace, until: int, mark: int) -> None:
        at = place.queue_id, place.offset
        self.messages[at] = Message("out", until, place.delivery, mark)
        self.handles.append(ShareHandle("g", "t", *at, place.delivery, mark))

    def apply(self, changes: list[object]) -> None:
        if not changes:
            return
        body = encode_command(StateCommand("c", self.now_ms, tuple(changes)))  # type: ignore[arg-type]
        for change in decode_command(body).changes:
            self.table.apply(change, self.place, self.now_ms)  # type: ignore[arg-type]
            self.offsets.apply(change, self.place, self.now_ms)  # type: ignore[arg-type]
        self.place += 1

    def check(self) -> None:
        """The table says of each message what the model does."""
        for number, queue in self.table.queues("g", "t").items():
            for offset in range(self.ends[number]):
                message, run = self.messages[number, offset], queue.find(offset)
                if message.state == "fresh":
                    assert run is None and offset >= queue.next
                elif message.state == "settled":
                    assert run is None and offset < queue.next
                else:
                    assert run is not None and run[2:] == message[1:]
            left = [
                offset for offset in range(self.ends[number])
                if self.messages[number, offset].state != "settled"
            ]  # fmt: skip
            assert queue.low == min(left, default=self.ends[number])
            assert self.offsets.offset("g", "t", number) == queue.low


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=150)
def test_each_message_is_what_its_consumers_made_of_it(seed: int) -> None:
    Course(seed).run(60)


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_what_a_filter_leaves_out_is_settled(seed: int) -> None:
    Course(seed, keeps=lambda offset: offset % 3 != 1).run(60)


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(deadline=None, max_examples=250)
def test_of_each_key_the_first_message_alone_is_handed_out(seed: int, keys: int) -> None:
    chosen = random.Random(seed)
    key_of = [chosen.choice([None, *map(str, range(keys))]) for _ in range(1_000)]
    Course(seed, keeps=lambda offset: offset % 5 != 1, key_of=key_of.__getitem__).run(60)


def plan_of(table: ShareTable, *, now_ms: int = 1_000, room: int = 100) -> SharePlan:
    return SharePlan(
        "g", "t", table.queues("g", "t"), {}, now_ms=now_ms, room=room, deliveries_max=2
    )


def test_no_more_is_handed_out_than_there_is_room_for() -> None:
    plan = plan_of(ShareTable(), room=5)
    taken = [
        plan.take_fresh(
            queue, range(3, 7), 4, lambda _, at, n: Fresh(range(at, at + n), at + n), Stand(9, 1, 7)
        )
        for queue in range(3)
    ]
    assert [[place.length for place in one] for one in taken] == [[4], [1], []]
    assert plan.room == 0


def test_what_the_queue_has_no_more_is_settled() -> None:
    table = ShareTable()
    plan = plan_of(table)
    plan.take_fresh(
        0, range(10), 10, lambda _, at, n: Fresh(range(at, at + n), at + n), Stand(9, 1, 7)
    )
    for change in plan.changes():
        table.apply(change, 0, 0)  # type: ignore[arg-type]

    later = plan_of(table)
    assert later.worn_out(0, 6, 10) == []
    assert [place.offset for place in later.due(0, 10)] == [6, 7, 8, 9]
    for change in later.changes():
        table.apply(change, 0, 0)  # type: ignore[arg-type]
    assert table.queues("g", "t")[0].low == 6


HANDLE = ShareHandle("a-group", "%RETRY%x", 3, 2**62, 17, 2**32 - 1)


def looks(*keys: str | None) -> Callable[[int], Iterator[LookedAt]]:
    def look(first: int) -> Iterator[LookedAt]:
        return (LookedAt(at, 1, keys[at], True) for at in range(first, len(keys)))

    return look


class Ordered:
    """Plans of a group in one queue whose messages have these keys."""

    def __init__(self, *keys: str | None) -> None:
        self.table, self.order, self.keys = ShareTable(), ShareOrder(), keys

    def plan(self, *, now_ms: int = 1_000, by_key: bool = True, room: int = 10_000) -> SharePlan:
        queues = self.table.queues("g", "t")
        if by_key:
            assert self.order.read_keys(queues, self._read, 10_000)
        plan = SharePlan(
            "g", "t", queues, {}, now_ms=now_ms, room=10_000, deliveries_max=9,
            order=self.order if by_key else None, room_to_wait=room,
        )  # fmt: skip
        for queue in queues:
            plan.free_waiting(queue, 1_000)
        return plan

    def _read(self, _queue: int, offsets: list[int]) -> dict[int, str]:
        return {at: key for at in offsets if (key := self.keys[at]) is not None}

    def take(self, plan: SharePlan, first: int = 0) -> list[int]:
        bounds, stand = range(first, len(self.keys)), Stand(plan.now_ms + 1_000, 1, 7)
        again = plan.due(0, 10_000)
        plan.take(again, plan.now_ms + 1_000, 7)
        if self.order is not None and plan.is_ordered:
            fresh = plan.take_fresh_in_order(
                0, bounds, 10_000, looks(*self.keys), has_room=lambda _size: True, stand=stand
            )
        else:
            fresh = plan.take_fresh(0, bounds, 10_000, all_of, stand)
        return offsets_of(again + fresh)

    def done(self, plan: SharePlan) -> list[Change]:
        changes = plan.changes()
        for change in changes:
            self.table.apply(change, 0, 0)  # type: ignore[arg-type]
        self.order.note_checked()
        return changes


def test_the_next_of_a_key_comes_in_the_command_that_settles_the_one_before_it() -> None:
    course = Ordered("a", "a", "b", None, "a", "b", None)
    plan = course.plan()
    assert course.take(plan) == [0, 2, 3, 6]
    course.done(plan)
    assert course.table.queues("g", "t")[0].waiting == 3

    plan = course.plan(now_ms=1_100)
    plan.accept(ShareHandle("g", "t", 0, 0, 1, 7))
    assert course.take(plan) == [1]
    course.done(plan)
    plan = course.plan(now_ms=1_200)
    plan.release(ShareHandle("g", "t", 0, 1, 1, 7), 100)
    assert course.take(plan) == []
    course.done(plan)
    # Due again before those behind it, and with them before anybody else.
    plan = course.plan(now_ms=1_300)
    plan.accept(ShareHandle("g", "t", 0, 2, 1, 7))
    assert course.take(plan) == [1, 5]


def test_behind_a_dead_letter_the_next_of_its_key_waits_until_that_is_stored() -> None:
    course = Ordered("a", "a")
    plan = course.plan()
    assert course.take(plan) == [0]
    course.done(plan)

    plan = course.plan(now_ms=1_100)
    plan.reject(ShareHandle("g", "t", 0, 0, 1, 7))
    assert course.take(plan) == []
    (behind,) = course.done(plan)
    assert isinstance(behind, ShareChanged) and behind.is_behind
    assert [run.first for run in behind.runs[0]] == [1]
    assert course.take(course.plan(now_ms=1_100)) == [1]


def test_a_group_may_go_by_keys_later_and_no_more() -> None:
    course = Ordered("a", "a", "a", "a")
    plan = course.plan(by_key=False)
    assert course.take(plan) == [0, 1, 2, 3]
    course.done(plan)
    # All are with somebody; what is due again waits for those before it.
    plan = course.plan(now_ms=3_000)
    assert course.take(plan) == [0]
    course.done(plan)
    assert course.table.queues("g", "t")[0].waiting == 3
    plan = course.plan(now_ms=3_100, by_key=False)
    assert course.take(plan) == [1, 2, 3]
    course.done(plan)
    assert course.table.queues("g", "t")[0].waiting == 0


def test_what_waits_behind_a_message_that_the_queue_has_no_more_goes_on() -> None:
    course = Ordered("a", "a", "a", "a")
    plan = course.plan()
    assert course.take(plan) == [0]
    course.done(plan)
    plan = course.plan(now_ms=9_000)
    assert plan.worn_out(0, 2, 10) == []
    assert course.take(plan, 2) == [2]
    course.done(plan)
    assert course.table.queues("g", "t")[0].low == 2
    # Another leader, which cannot read what the one in flight was.
    course.order, course.keys = ShareOrder(), (None, None, None, "a")
    plan = course.plan(now_ms=9_000)
    assert course.take(plan, 3) == [3]


def test_no_more_is_passed_over_than_is_allowed() -> None:
    course = Ordered(*["a"] * (AHEAD_MAX + 10), "b")
    for _ in range(2):
        plan = course.plan()
        course.take(plan)
        course.done(plan)
    queue = course.table.queues("g", "t")[0]
    assert (queue.waiting, queue.next, len(queue.runs)) == (AHEAD_MAX, AHEAD_MAX + 1, 2)

    narrow = Ordered("a", "a", "a", "b")
    plan = narrow.plan(room=1)
    assert narrow.take(plan) == [0]
    narrow.done(plan)
    assert narrow.table.queues("g", "t")[0].next == 2
    plan = narrow.plan(room=5)
    assert narrow.take(plan) == [3]


def offsets_of(places: list[TakenPlace]) -> list[int]:
    return sorted(offset for place in places for offset in place.offsets)


def test_a_queue_in_order_gives_nothing_while_a_message_of_it_is_held() -> None:
    table = ShareTable()

    def done(plan: SharePlan) -> None:
        for change in plan.changes():
            table.apply(change, 0, 0)  # type: ignore[arg-type]

    plan = plan_of(table)
    assert not plan.is_held(0)
    plan.take_fresh(0, range(4), 3, all_of, Stand(2_000, 1, 7))
    assert plan.is_held(0) and not plan.is_held(1)
    done(plan)
    assert plan_of(table).is_held(0)
    plan = plan_of(table)
    plan.accept(ShareHandle("g", "t", 0, 0, 1, 7, length=2))
    assert plan.is_held(0)
    plan.accept(ShareHandle("g", "t", 0, 2, 1, 7))
    assert not plan.is_held(0)
    late = plan_of(table, now_ms=2_000)
    late.accept(ShareHandle("g", "t", 0, 1, 1, 7))
    assert not late.is_held(0)
    places, is_all = late.again_in_order(0, 5)
    assert ([place[:3] for place in places], is_all) == ([(0, 0, 2), (0, 2, 2)], True)
    assert late.again_in_order(0, 1) == ([(0, 0, 2, 1)], False)
    late.release(ShareHandle("g", "t", 0, 0, 1, 7), 500)
    assert late.is_held(0)


def test_a_handle_names_messages_that_follow_one_another() -> None:
    many = HANDLE._replace(length=1_024)
    assert read_handle(f"{HANDLE.text}*1024") == many
    assert [read_handle(f"{HANDLE.text}*{text}") for text in ("1025", "0", "01", "", "-1")] == (
        [None] * 5
    )
    assert read_handle(f"{HANDLE.text}*2*2") is None


def test_a_handle_is_what_its_text_says() -> None:
    assert read_handle(HANDLE.text) == HANDLE
    assert HANDLE.text == f"1:a-group:%RETRY%x:3:{2**62}:17:ffffffff"


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "1:g:t:0:1:1", "2:g:t:0:1:1:7", "1:g:t:0:1:1:7:", "1::t:0:1:1:7", "1:g::0:1:1:7",
        "1:g:t:0:1:1:0", "1:g:t:0:1:1:100000000", "1:g:t:-1:1:1:7", "1:g:t:0:1:1:0x7",
        "1:g:t:0:+1:1:7", "1:g:t:0:01:1:7", "1:g:t:0:1:1:A", "1:g:t:0:1:1:07", "1:g:t:0:\u0661:1:7",
        f"1:g:t:0:{2**63}:1:7", "1:g:t:0:" + "9" * 400 + ":1:7", "1:g:t:0:1:1:_7",
    ],
)  # fmt: skip
def test_a_text_that_nobody_was_told_is_no_handle(text: str) -> None:
    assert read_handle(text) is None


def all_of(_queue: int, first: int, count: int) -> Fresh:
    return Fresh(range(first, first + count), first + count)


def test_an_offset_that_no_command_has_set_counts_all_the_same() -> None:
    table, offsets = ShareTable(), GroupOffsets()
    plan = plan_of(table)
    plan.take_fresh(0, range(10), 4, all_of, Stand(9_000, 1, 7))
    for change in plan.changes():
        table.apply(change, 0, 0)  # type: ignore[arg-type]
    # As a leader puts one right that lies behind its queue, or a file from outside has it.
    later = SharePlan(
        "g", "t", table.queues("g", "t"), {0: 2}, now_ms=1_000, room=100, deliveries_max=2
    )
    taken = later.take_fresh(0, range(10), 3, all_of, Stand(9_000, 1, 8))
    for change in later.changes():
        table.apply(change, 0, 0)  # type: ignore[arg-type]
        if not isinstance(change, OffsetsSet):
            offsets.apply(change, 0, 0)  # type: ignore[arg-type]

    assert offsets_of(taken) == [2, 3, 4]
    queue = table.queues("g", "t")[0]
    assert (queue.low, queue.next, queue.unsettled) == (2, 5, 3)
    assert offsets.offsets("g", "t") == {0: 2}


def test_what_is_rejected_is_settled_behind_its_dead_letter_alone() -> None:
    table = ShareTable()
    plan = plan_of(table)
    plan.take_fresh(0, range(10), 3, all_of, Stand(9_000, 1, 7))
    for change in plan.changes():
        table.apply(change, 0, 0)  # type: ignore[arg-type]

    later = plan_of(table)
    later.reject(ShareHandle("g", "t", 0, 0, 1, 7))
    later.accept(ShareHandle("g", "t", 0, 1, 1, 7))
    before, behind = later.changes()

    assert isinstance(before, ShareChanged) and isinstance(behind, ShareChanged)
    assert (before.is_behind, before.lows, before.settled[0]) == (
        False,
        {0: 0},
        (OffsetSpan(1, 1),),
    )
    assert (behind.is_behind, behind.lows, behind.settled[0]) == (True, {0: 2}, (OffsetSpan(0, 1),))


def test_a_group_may_begin_behind_what_is_there_in_a_queue_where_it_is_nowhere() -> None:
    table = ShareTable()
    plan = plan_of(table)
    is_new = [plan.is_nowhere(0)]
    plan.begin(0, 10)
    plan.begin(1, 10)
    is_new.append(plan.is_nowhere(0))
    taken = plan.take_fresh(0, range(3, 12), 4, all_of, Stand(9_000, 1, 7))
    for change in plan.changes():
        table.apply(change, 0, 0)  # type: ignore[arg-type]
    later = plan_of(table)
    is_new.append(later.is_nowhere(0))
    later.begin(1, 20)
    again = later.take_fresh(1, range(3, 13), 9, all_of, Stand(9_000, 1, 8))

    assert is_new == [True, False, False]
    assert offsets_of(taken) == [10, 11]
    assert offsets_of(again) == [10, 11, 12]
