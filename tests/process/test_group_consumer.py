"""``GroupConsumer`` against the real node: who reads what while members come and go."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.client.aio.group_consumer import AsyncGroupConsumer
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.received import MessageBatch
from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.client.groups.group_member import GroupOptions
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import (
    ConfigError,
    GroupUnknownError,
    NoPermissionError,
    TopicUnknownError,
)
from tests.process.conftest import wait_until
from tests.process.group_readers import Journal, Reader
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

GROUPS = {"heartbeat_ms": 500, "member_expiry_ms": 5_000, "lock_expiry_ms": 8_000}
ALL = frozenset(TopicQueue("orders", queue_id) for queue_id in range(4))

NODE = {"groups": GROUPS}


NUMBERS = itertools.count()


def send(address: str, topic: str, count: int) -> list[bytes]:
    """So many messages that are like no others, to the four queues in turn."""
    bodies = [f"{topic} {next(NUMBERS)}".encode() for _ in range(count)]
    with Producer(address) as producer:
        futures = [
            producer.send_batch(topic, bodies[queue::4], queue_id=queue) for queue in range(4)
        ]
        for future in futures:
            future.result(PATIENCE_S)
    return bodies


def wait_shares(readers: list[Reader], *sizes: int) -> None:
    """Until the readers have so many queues each, and all together."""

    def shares() -> bool:
        errors = [error for reader in readers for error in reader.errors]
        assert not errors
        return sorted(len(reader.assignment) for reader in readers) == sorted(sizes)

    wait_until(shares, f"shares of {sizes}", PATIENCE_S)


def poll_some(consumer: GroupConsumer) -> MessageBatch:
    """The next batch that has messages."""
    return wait_until(lambda: consumer.poll(1.0), "messages", PATIENCE_S)  # type: ignore[no-any-return]


@pytest.mark.parametrize("strategy", ["average", "sticky"])
def test_queues_are_handed_over_without_a_message_twice_or_out_of_order(
    address: str, strategy: str
) -> None:
    group, journal = f"sharing-{strategy}", Journal()
    options = GroupOptions(strategy=strategy)  # type: ignore[arg-type]
    bodies = send(address, "orders", 400)
    with ExitStack() as stack:

        def join(name: str) -> Reader:
            reader = Reader(address, journal, group=group, name=name, options=options)
            return stack.enter_context(reader)

        readers = [join("b")]
        wait_shares(readers, 4)
        readers.append(join("a"))
        wait_shares(readers, 2, 2)
        bodies += send(address, "orders", 400)
        readers.append(join("c"))
        wait_shares(readers, 1, 1, 2)
        bodies += send(address, "orders", 400)
        readers.pop(1).stop()
        wait_shares(readers, 2, 2)
        bodies += send(address, "orders", 400)
        wait_until(lambda: journal.bodies.keys() >= set(bodies), "all messages", PATIENCE_S)
        lost = [notice for reader in readers for notice in reader.told.notices if "lost" in notice]

    assert set(journal.bodies.values()) == {1}
    assert lost == []
    for seen in journal.by_queue().values():
        offsets = [one.offset for one in seen]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_a_member_that_joins_moves_no_more_queues_than_it_gets_when_sticky(address: str) -> None:
    journal, options = Journal(), GroupOptions(strategy="sticky")
    with ExitStack() as stack:
        readers = [
            stack.enter_context(
                Reader(address, journal, group="sticking", name=name, options=options)
            )
            for name in "bc"
        ]
        wait_shares(readers, 2, 2)
        before = [reader.assignment for reader in readers]
        # It sorts before the others: the average strategy would move all that follow.
        readers.append(
            stack.enter_context(
                Reader(address, journal, group="sticking", name="a", options=options)
            )
        )
        wait_shares(readers, 1, 1, 2)
        after = [reader.assignment for reader in readers]

    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert frozenset().union(*after) == ALL


def test_a_queue_in_order_gives_nothing_more_before_its_batch_is_committed(address: str) -> None:
    send(address, "other", 40)
    with GroupConsumer(
        address, group="in-order", group_options=GroupOptions(ordered=True)
    ) as consumer:
        consumer.subscribe("other")
        batches = [poll_some(consumer) for _ in range(4)]
        more = send(address, "other", 4)
        nothing = consumer.poll(0.3)
        first = batches[0]
        consumer.commit({TopicQueue("other", first.queue_id): first.next_offset})
        again = poll_some(consumer)

    assert {batch.queue_id for batch in batches} == {0, 1, 2, 3}
    assert len(nothing) == 0
    assert again.queue_id == first.queue_id
    assert bytes(again[0].body) in more
    assert again[0].queue_offset == first.next_offset


def test_a_message_or_a_batch_is_noted_with_all_before_it(address: str) -> None:
    send(address, "other", 40)
    with GroupConsumer(address, group="noting") as consumer, Admin(address) as admin:
        consumer.subscribe("other")
        first, second = poll_some(consumer), poll_some(consumer)
        consumer.commit(first[1])
        consumer.commit(second)
        noted = {one.queue: one.offset for one in admin.lag("noting", "other")}

    assert noted[first.queue_id] == first[1].queue_offset + 1 < first.next_offset
    assert noted[second.queue_id] == second.next_offset


def test_a_queue_in_order_is_given_away_only_when_its_batch_is_committed(address: str) -> None:
    journal, options = Journal(), GroupOptions(ordered=True)
    send(address, "orders", 40)
    working, go_on = threading.Event(), threading.Event()

    def work() -> None:
        working.set()
        assert go_on.wait(PATIENCE_S)

    with Reader(
        address, journal, group="busy", name="b", options=options, before_commit=work
    ) as busy:
        assert working.wait(PATIENCE_S)
        with Reader(address, journal, group="busy", name="a", options=options) as other:
            # The other one is known, and gets nothing: its half is locked by who works.
            wait_until(lambda: other.polls >= 5, "a look", PATIENCE_S)
            during = other.assignment
            go_on.set()
            wait_shares([busy, other], 2, 2)

    assert during == frozenset()
    for seen in journal.by_queue().values():
        offsets = [one.offset for one in seen]
        assert offsets == sorted(set(offsets))


def test_broadcasting_gives_all_to_all_and_goes_on_from_its_own_file(
    address: str, tmp_path: Path
) -> None:
    options = GroupOptions(model="broadcasting", offsets_directory=tmp_path)
    bodies = set(send(address, "other", 40))
    journals = [Journal(), Journal()]
    with ExitStack() as stack:
        for number, journal in enumerate(journals):
            name = f"screen-{number}"
            stack.enter_context(
                Reader(
                    address, journal, group="screens", name=name, topics="other", options=options
                )
            )
        for journal in journals:
            wait_until(lambda j=journal: bodies <= j.bodies.keys(), "all messages", PATIENCE_S)
    more = set(send(address, "other", 8))
    later = Journal()
    with Reader(address, later, group="screens", name="screen-0", topics="other", options=options):
        wait_until(lambda: more <= later.bodies.keys(), "new messages", PATIENCE_S)

    assert later.bodies.keys() == more
    assert (tmp_path / "screen-0" / "screens" / "offsets.json").exists()


def test_a_group_that_begins_at_the_end_misses_nothing_that_comes_later(address: str) -> None:
    send(address, "other", 20)
    options = GroupOptions(start="last")
    with GroupConsumer(address, group="late", group_options=options) as consumer:
        consumer.subscribe("other")
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment, "queues", PATIENCE_S)
    bodies = send(address, "other", 20)
    journal = Journal()
    with Reader(address, journal, group="late", name="x", topics="other", options=options):
        wait_until(lambda: len(journal.seen) >= 20, "messages", PATIENCE_S)

    assert set(journal.bodies) == set(bodies)


def test_members_that_want_different_things_are_told_of_it(address: str) -> None:
    journal = Journal()
    with (
        Reader(address, journal, group="mixed", name="a", topics="orders") as first,
        Reader(address, journal, group="mixed", name="b", topics=["orders", "other"]) as second,
    ):
        wait_until(lambda: first.warnings and second.warnings, "warnings", PATIENCE_S)
        # Whoever does not want a topic gets none of its queues.
        wait_shares([first, second], 2, 6)
        warnings = [first.warnings, second.warnings]

    assert warnings[0] == warnings[1]
    assert "members differ in topics: " in warnings[0][0]
    assert "a has orders" in warnings[0][0]
    assert "b has orders, other" in warnings[0][0]


def test_who_takes_a_name_has_the_queues_and_who_had_it_is_refused(address: str) -> None:
    with GroupConsumer(address, group="names", name="one") as older:
        older.subscribe("orders")
        wait_until(lambda: older.poll(0.1) or older.assignment, "queues", PATIENCE_S)
        with GroupConsumer(address, group="names", name="one") as newer:
            newer.subscribe("orders")
            wait_until(lambda: newer.poll(0.1) or newer.assignment, "queues", PATIENCE_S)
            with pytest.raises(NoPermissionError, match="has this client id now"):
                wait_until(lambda: older.poll(0.5) and False, "a refusal", PATIENCE_S)
            mine = newer.assignment

    assert mine == ALL


def test_queues_are_paused_sought_and_refused_to_others(address: str) -> None:
    send(address, "orders", 40)
    with GroupConsumer(address, group="seeking") as consumer:
        consumer.subscribe("orders")
        batch = poll_some(consumer)
        queue = TopicQueue("orders", batch.queue_id)
        for one in ALL - {queue}:
            consumer.pause(one)
        consumer.seek(queue, batch[0].queue_offset)
        again = poll_some(consumer)
        consumer.pause(queue)
        paused = consumer.poll(0.2)
        for one in ALL:
            consumer.resume(one)
        others = {poll_some(consumer).queue_id for _ in range(3)}
        with pytest.raises(TopicUnknownError):
            consumer.seek(TopicQueue("orders", 99), 0)

    assert bytes(again[0].body) == bytes(batch[0].body)
    assert len(paused) == 0
    assert others == {one.queue_id for one in ALL - {queue}}


def test_in_order_a_queue_is_read_again_from_before_what_is_committed(address: str) -> None:
    send(address, "orders", 80)
    options, sizes = GroupOptions(ordered=True), ConsumerOptions(messages_max=5)
    with GroupConsumer(address, group="again", group_options=options, options=sizes) as consumer:
        consumer.subscribe("orders")

        def read_to(end: int, queue: TopicQueue) -> list[int]:
            offsets: list[int] = []

            def is_there() -> bool:
                batch = consumer.poll(0.5)
                if (batch.topic, batch.queue_id) == queue:
                    offsets.extend(one.queue_offset for one in batch)
                consumer.commit()
                return bool(offsets) and offsets[-1] == end - 1

            wait_until(is_there, f"messages up to {end}", PATIENCE_S)
            return offsets

        queue = TopicQueue("orders", 0)
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment, "queues", PATIENCE_S)
        consumer.seek(queue, 0)
        first = read_to(20, queue)
        consumer.seek(queue, 0)
        again = read_to(20, queue)

    assert first[:20] == again[:20] == list(range(20))


def test_asyncio_members_share_with_others(address: str) -> None:
    bodies = set(send(address, "orders", 80))
    seen: set[bytes] = set()

    async def read(name: str) -> frozenset[TopicQueue]:
        consumer = AsyncGroupConsumer(address, group="loop", name=name)
        consumer.subscribe("orders")
        async with asyncio.timeout(PATIENCE_S), consumer:
            while not bodies <= seen or len(consumer.assignment) != 2:
                batch = await consumer.poll(0.2)
                seen.update(bytes(one.body) for one in batch)
                await consumer.commit()
            done.append(name)
            while len(done) < 2:
                await consumer.poll(0.05)
            return consumer.assignment

    done: list[str] = []

    async def both() -> list[frozenset[TopicQueue]]:
        return list(await asyncio.gather(read("a"), read("b")))

    shares = asyncio.run(both())

    assert bodies <= seen
    assert shares[0] | shares[1] == ALL


@pytest.mark.parametrize("one_group", [True, False])
@pytest.mark.parametrize("is_opened_first", [True, False])
def test_a_member_subscribes_before_it_is_opened_or_after(
    address: str, one_group: bool, is_opened_first: bool
) -> None:
    group = f"order {one_group} {is_opened_first}".replace(" ", "_")
    bodies = set(send(address, "orders", 8))

    async def awaited() -> set[bytes]:
        consumer = AsyncGroupConsumer(address, group=f"{group}_loop", one_group=one_group)
        if not is_opened_first:
            consumer.subscribe("orders")
        async with asyncio.timeout(PATIENCE_S), consumer:
            if is_opened_first:
                with pytest.raises(ConfigError, match="call subscribe first"):
                    await consumer.poll(0)
                consumer.subscribe("orders")
            found: set[bytes] = set()
            while not bodies <= found:
                found |= {message.body for message in await consumer.poll()}
            return found

    def waited() -> set[bytes]:
        consumer = GroupConsumer(address, group=group, one_group=one_group)
        if not is_opened_first:
            consumer.subscribe("orders")
        with consumer:
            if is_opened_first:
                with pytest.raises(ConfigError, match="call subscribe first"):
                    consumer.poll(0)
                consumer.subscribe("orders")
            found: set[bytes] = set()
            while not bodies <= found:
                found |= {message.body for message in poll_some(consumer)}
            return found

    assert bodies <= waited()
    assert bodies <= asyncio.run(awaited())


def test_who_awaits_a_first_poll_of_no_time_is_a_member(address: str) -> None:
    def members() -> object:
        with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
            try:
                return broker.call("group_members", group="once")["members"]
            except GroupUnknownError:
                return None

    async def steps() -> None:
        consumer = AsyncGroupConsumer(address, group="once", name="member")
        consumer.subscribe("orders")
        async with consumer:
            assert not len(await consumer.poll(0))
            await asyncio.to_thread(wait_until, members, "the member")

    asyncio.run(steps())


@pytest.mark.long
def test_a_consumer_that_asks_for_nothing_any_more_gives_its_queues_up(address: str) -> None:
    options = GroupOptions(poll_interval_max_s=1.0)
    journal = Journal()
    with GroupConsumer(address, group="stuck", name="stuck", group_options=options) as stuck:
        stuck.subscribe("orders")
        wait_until(lambda: stuck.poll(0.1) or stuck.assignment, "queues", PATIENCE_S)
        with Reader(address, journal, group="stuck", name="other") as other:
            wait_shares([other], 4)
            # It comes back, and finds that out.
            wait_until(
                lambda: (stuck.poll(0.1), len(stuck.assignment) == 2)[1], "its share", PATIENCE_S
            )
