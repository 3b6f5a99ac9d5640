"""``GroupConsumer`` with two groups of one real node each, which die, come and go."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from ledgermq.client import (
    ClusterQueue,
    GroupConsumer,
    GroupOptions,
    Producer,
    RebalanceListener,
    TopicQueue,
)
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.aio import AsyncGroupConsumer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.start_offsets import Start
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    MessageIllegalError,
    TopicUnknownError,
)
from tests.process import cluster_reader_process
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_readers import Told
from tests.process.test_cluster_groups import ClusterNode
from tests.process.two_groups import HOME, OTHER, Pair, joined_pair
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOPIC, QUEUES = "sales", 3
BATCH_MAX = cluster_reader_process.BATCH_MAX
GROUPS = {"heartbeat_ms": 300}
DIES_SOON = GROUPS | {"member_expiry_ms": 2_000, "lock_expiry_ms": 2_500}
OPTIONS = ConsumerOptions(messages_max=BATCH_MAX, hold_ms=500, timeout_s=PATIENCE_S)


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients ask for groups, and for who has the topic, more often than every 30 s."""
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.LOOK_S", 0.2)


@pytest.fixture
def pair(
    make_node: Callable[[], Node],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Pair:
    """A home that has a topic over groups, and another group, which has not."""
    groups = getattr(request, "param", GROUPS)
    home, other = joined_pair(make_node, capsys, tmp_path, groups=groups)
    with connect_broker(f"ipc://{home.node.runtime}", name="test", timeout_s=PATIENCE_S) as broker:
        ClusterAdmin(broker).set_topic(TOPIC, [HOME], queues=QUEUES)
    wait_topic(home)
    return home, other


def wait_topic(group: ClusterNode) -> None:
    with connect_broker(group.address, name="test", timeout_s=PATIENCE_S) as broker:
        wait_until(lambda: any(row.topic == TOPIC for row in broker.topics()), "the topic")


def spread(home: ClusterNode, other: ClusterNode) -> None:
    with connect_broker(f"ipc://{home.node.runtime}", name="test", timeout_s=PATIENCE_S) as broker:
        ClusterAdmin(broker).set_topic(TOPIC, [OTHER], spread=True)
    wait_topic(other)


class Seen(NamedTuple):
    """A message that a member was given."""

    group: str
    queue_id: int
    offset: int
    body: str


class Journal:
    """What all members have seen, in the order of reading, and what was sent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen: list[Seen] = []
        self.sent: list[str] = []

    def note(self, seen: Sequence[Seen]) -> None:
        with self._lock:
            self.seen += seen

    def send(self, *groups: ClusterNode, each: int = 30) -> None:
        """So many messages that are like no others to each of these groups, queues in turn."""
        for group in groups:
            with Producer(group.address, one_group=True) as producer:
                for number in range(each):
                    self.sent.append(f"{group.name}/{len(self.sent)}")
                    body = self.sent[-1].encode()
                    producer.send(TOPIC, body, queue_id=number % QUEUES)
                producer.flush(PATIENCE_S)

    def wait_all(self) -> None:
        def have_come() -> bool:
            with self._lock:
                return {one.body for one in self.seen} >= set(self.sent)

        wait_until(have_come, "all messages", PATIENCE_S)

    def check_order(self) -> None:
        """In each queue each message was read for the first time after those before it.

        What is read again was in a batch that was not noted: the last one of its queue.
        """
        firsts: dict[tuple[str, int], list[int]] = {}
        for one in self.seen:
            offsets = firsts.setdefault((one.group, one.queue_id), [])
            assert one.offset >= len(offsets) - BATCH_MAX, one
            if one.offset not in offsets:
                offsets.append(one.offset)
        for place, offsets in firsts.items():
            assert offsets == list(range(len(offsets))), place

    def check_once(self) -> None:
        """No message was read twice."""
        assert sorted(one.body for one in self.seen) == sorted(self.sent)


class ToldMember(Told[TopicQueue], RebalanceListener):
    """In all groups of a cluster."""


class Member:
    """A member in a thread of its own, which notes what it is given, and commits it."""

    def __init__(
        self,
        address: str,
        journal: Journal,
        name: str,
        *,
        start: Start = "first",
    ) -> None:
        self.told = ToldMember()
        self.assignment: frozenset[TopicQueue] = frozenset()
        self.groups: list[str] = []
        self.error: BaseException | None = None
        self._journal = journal
        self._stop = threading.Event()
        self._consumer = GroupConsumer(
            address,
            group="billing",
            name=name,
            listener=self.told,
            group_options=GroupOptions(ordered=True, start=start),
            options=OPTIONS,
        )
        self._consumer.subscribe(TOPIC)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def counts(self) -> int:
        """How many queues of the topic it has."""
        assert self.error is None, self.error
        return sum(one.topic == TOPIC for one in self.assignment)

    def knows_without(self, group: str) -> bool:
        """Whether it has heard that a group has not the topic: what comes there it reads whole."""
        several = self._consumer._several
        return several is not None and group in several._without

    def stop(self) -> None:
        """Leave; raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with self._consumer as consumer:
                while not self._stop.is_set():
                    batch = consumer.poll(0.1)
                    group = batch.broker_group
                    self.assignment, self.groups = consumer.assignment, consumer.groups()
                    self._journal.note(
                        [
                            Seen(group, one.queue_id, one.queue_offset, bytes(one.body).decode())
                            for one in batch
                        ]
                    )
                    # Also what could not be noted before: its queue gives nothing else meanwhile.
                    self._commit()
        except BaseException as error:
            # Told to the test by ``stop``.
            self.error = error

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except LedgerError as error:
            # A group is dead, or this member was held to be: what it was given is noted with what
            # comes, or given again.
            if not error.retriable and not isinstance(error, MessageIllegalError):
                raise


def wait_shares(members: Sequence[Member], *counts: int) -> None:
    wait_until(
        lambda: sorted(one.counts() for one in members) == sorted(counts),
        f"shares of {counts}",
        PATIENCE_S,
    )


def test_queues_are_handed_over_in_order_and_once_while_a_topic_is_spread_and_members_come_and_go(
    pair: Pair,
) -> None:
    home, other = pair
    journal = Journal()
    with ExitStack() as stack:
        first = stack.enter_context(Member(other.address, journal, "first", start="last"))
        wait_shares([first], 3)
        journal.send(home)
        second = stack.enter_context(Member(home.address, journal, "second", start="last"))
        wait_shares([first, second], 1, 2)
        journal.send(home)
        wait_until(lambda: first.knows_without(OTHER) and second.knows_without(OTHER), "answers")
        spread(home, other)
        journal.send(other)
        # The odd queue of each group goes to another member.
        wait_shares([first, second], 3, 3)
        journal.send(home, other)
        journal.wait_all()
        # A member of one group alone knows of no turns: there all share as it does.
        options = GroupOptions(ordered=True)
        with GroupConsumer(
            other.address,
            group="billing",
            name="m",
            group_options=options,
            options=OPTIONS,
            one_group=True,
        ) as plain:
            plain.subscribe(TOPIC)

            def has_one_queue() -> bool:
                assert not len(plain.poll(0.1))
                return [one.topic for one in plain.assignment].count(TOPIC) == 1

            wait_until(has_one_queue, "a share of the group that it knows", PATIENCE_S)
            wait_until(lambda: first.counts() + second.counts() == 5, "all others", PATIENCE_S)
        wait_shares([first, second], 3, 3)
        journal.send(home, other)
        journal.wait_all()
        second.stop()
        wait_shares([first], 6)
        journal.send(home, other)
        journal.wait_all()

    journal.check_order()
    journal.check_once()
    assert not [one for one in first.told.notices + second.told.notices if one[0] == "lost"]
    of_first = [
        queue for what, queues in first.told.notices for queue in queues if what == "assigned"
    ]
    assert {queue.group for queue in of_first if queue.topic == TOPIC} == {HOME, OTHER}


class Killed:
    """A member that is a process, and is killed at the end."""

    def __init__(self, address: str, journal: Journal, name: str) -> None:
        self._journal = journal
        self._process = subprocess.Popen(
            [sys.executable, cluster_reader_process.__file__, address, TOPIC, name],
            env={**os.environ, "PYTHONPATH": f"{SOURCES}:{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                # It was killed while it wrote, and so has not noted what this line is about.
                return
            group, queue_id, offset, body = line.split()
            self._journal.note([Seen(group, int(queue_id), int(offset), body)])


@pytest.mark.parametrize("pair", [DIES_SOON], indirect=True, ids=["soon"])
def test_what_a_killed_member_had_goes_to_the_others_and_a_group_that_dies_comes_back(
    pair: Pair,
) -> None:
    home, other = pair
    spread(home, other)
    journal = Journal()
    journal.send(home, other)
    with Member(home.address, journal, "lives") as lives:
        wait_shares([lives], 6)
        with Killed(other.address, journal, "dies") as dies:
            wait_shares([lives], 3)
            journal.send(home, other, each=60)
            dies.kill()
        wait_shares([lives], 6)
        journal.send(home, other)
        journal.wait_all()
        home.node.end()
        journal.send(other)
        journal.wait_all()
        home.node.serve()
        journal.send(home, other)
        journal.wait_all()
        wait_shares([lives], 6)

    journal.check_order()


async def read(
    consumer: AsyncGroupConsumer, count: int, *, back: bool = False
) -> list[tuple[str, str, int]]:
    """So many messages: groups, bodies, and how often they came again; the first is given back."""
    found: list[tuple[str, str, int]] = []
    while len(found) < count:
        poll = asyncio.create_task(consumer.poll(PATIENCE_S))
        await asyncio.sleep(0)
        if not poll.done():
            # Who is cancelled has been given nothing.
            poll.cancel()
        try:
            batch = await poll
        except asyncio.CancelledError:
            batch = await consumer.poll(PATIENCE_S)
        group = batch.broker_group
        for message in batch:
            again = message.reconsume_times
            if back and not again and group not in [one[0] for one in found]:
                (given,) = await consumer.retry_later(message, delay_level=1)
                assert given.reconsume_times == 1
            found.append((group, bytes(message.body).decode(), again))
    return found


def test_the_awaitable_form_gives_back_pauses_and_leaves_a_group_that_is_removed(
    pair: Pair,
) -> None:
    home, other = pair
    spread(home, other)
    journal = Journal()
    journal.send(home, other, each=6)
    told: list[tuple[str, str]] = []

    class Awaited(RebalanceListener):
        async def on_revoked(self, queues: Sequence[TopicQueue]) -> None:
            await consumer.commit()
            told.extend(("revoked", queue.group) for queue in queues if queue.topic == TOPIC)

    consumer = AsyncGroupConsumer(
        home.address, group="billing", name="awaits", listener=Awaited(), options=OPTIONS
    )
    consumer.subscribe(TOPIC)

    async def course() -> None:
        async with consumer:
            first = await read(consumer, 14, back=True)
            assert {body for _, body, again in first if not again} == set(journal.sent)
            assert {group for group, _, again in first if again} == {HOME, OTHER}
            paused = ClusterQueue(HOME, TOPIC, 0)
            assert len([one for one in consumer.assignment if one.topic == TOPIC]) == 6
            consumer.pause(paused)
            assert consumer.paused == {paused}
            position = consumer.positions()[paused]
            consumer.seek(paused, position - 1)
            assert not len(await consumer.poll(0.3))
            consumer.resume(paused)
            assert len(await read(consumer, 1)) == 1
            await consumer.commit({paused: position})
            with pytest.raises(TopicUnknownError):
                consumer.pause(ClusterQueue("orders-c", TOPIC, 0))
            with pytest.raises(ConfigError, match="no such group"):
                await consumer.commit({ClusterQueue("orders-c", TOPIC, 0): 1})
            # What it still has is read, and then it is left.
            await asyncio.to_thread(journal.send, other, each=6)
            removed = await asyncio.to_thread(home.run, "remove", OTHER, "--yes")
            assert removed[0] == 0, removed
            assert {group for group, _, _ in await read(consumer, 6)} == {OTHER}
            while consumer.groups() != [HOME]:
                assert not len(await consumer.poll(0.1))
            assert told == [("revoked", OTHER)] * 3
        assert sorted(told) == [("revoked", HOME)] * 3 + [("revoked", OTHER)] * 3

    asyncio.run(asyncio.wait_for(course(), PATIENCE_S))

    for group in pair:
        with connect_broker(group.address, name="test", timeout_s=PATIENCE_S) as broker:
            noted = broker.group_offset("billing", TOPIC)
            assert all(noted[one] == broker.queue(TOPIC, one).end for one in range(QUEUES))
            assert broker.call("group_members", group="billing")["members"] == []


def test_what_no_member_can_be_is_refused(pair: Pair) -> None:
    options = GroupOptions(model="broadcasting")
    with GroupConsumer(pair[0].address, group="g", name="m", group_options=options) as consumer:
        consumer.subscribe(TOPIC)
        with pytest.raises(ConfigError, match="use Consumer"):
            consumer.poll(PATIENCE_S)
    with (
        GroupConsumer("tcp://127.0.0.1:1", group="g") as consumer,
        pytest.raises(ConfigError, match="no topic"),
    ):
        consumer.poll(0)
