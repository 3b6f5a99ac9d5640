"""Topics, groups and consumed offsets are in the log: of real nodes, whoever dies."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.nodes import broker_link
from ledgermq.formats.config_json import APPLIED_KEY, decode_document
from ledgermq.model.errors import (
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.rules.state.state_tables import FILES, OWN_FILES
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.topics import TopicTable
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, producer, wait_heard
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LEDGERMQ_LEADER_KILLS", "2"))
SEED = int(os.environ.get("LEDGERMQ_KILL_SEED", random.randrange(2**32)))


@contextmanager
def broker_of(addresses: str | Sequence[str]) -> Iterator[Broker]:
    """Calls to the leader of these nodes, asked again until one answers."""
    link = broker_link(zmq.Context.instance(), parse_addresses(addresses), client="test")
    broker = Broker(link, timeout_s=PATIENCE_S)
    try:
        yield broker
    finally:
        link.close()


@pytest.fixture(params=["dledger", "commitlog"])
def node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    made = make_node()
    start_client_node(made, log=request.param)
    return made


def document(node: Node, file: str) -> dict[str, object]:
    return decode_document((node.root / "config" / file).read_bytes())


def offsets_in_file(node: Node, group: str, topic: str) -> dict[int, int]:
    if not (node.root / "config" / "consumerOffset.json").exists():
        return {}
    return GroupOffsets.read(document(node, "consumerOffset.json")).offsets(group, topic)


def queues_in_file(node: Node, topic: str) -> int:
    found = TopicTable.read(document(node, "topics.json")).get(topic)
    return 0 if found is None else found.write_queues


def test_what_was_answered_is_there_after_all_processes_were_killed(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as one, broker_of(address) as broker:
        one.send_batch("orders", [b"x"] * 10, queue_id=2).result()
        broker.create_topic("made", 3)
        broker.group_commit("g", "orders", {2: 7})
        node.signal(signal.SIGKILL)
    node.wait_end()
    node.serve()
    with broker_of(address) as broker:
        offsets = broker.group_offset("g", "orders")
        made = broker.route("made", create=False)
    node.stop()

    assert offsets == {2: 7}
    assert made.write_queues == 3
    assert (queues_in_file(node, "made"), offsets_in_file(node, "g", "orders")) == (3, {2: 7})


def test_commits_are_checked_where_they_are_made(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as one, broker_of(address) as broker:
        one.send_batch("orders", [b"x"] * 10, queue_id=0).result()
        broker.group_commit("g", "orders", {0: 4})
        broker.group_commit("g", "orders", {0: 4})
        with pytest.raises(MessageIllegalError, match="below the committed"):
            broker.group_commit("g", "orders", {0: 3, 1: 0})
        with pytest.raises(MessageIllegalError, match="outside of the queue"):
            broker.group_commit("g", "orders", {0: 10_000})
        with pytest.raises(TopicUnknownError):
            broker.group_commit("g", "orders", {9: 0})
        with pytest.raises(MessageIllegalError):
            broker.group_commit("no name", "orders", {0: 5})

        assert broker.group_offset("g", "orders") == {0: 4}


def test_a_new_topic_can_be_sent_to_once_it_is_answered(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with broker_of(address) as broker, Producer(address) as one:
        for number in range(5):
            made = broker.create_topic(f"made{number}", 2)
            sent = one.send(f"made{number}", b"x", queue_id=1).result()

            assert (made.write_queues, sent.queue_offset) == (2, 0)
        with pytest.raises(NoPermissionError):
            broker.create_topic("rmq_sys_mine", 1)
        with pytest.raises(MessageIllegalError):
            broker.create_topic("a b", 1)
        with pytest.raises(MessageIllegalError, match="fewer queues"):
            broker.create_topic("made0", 1)
        grown = broker.create_topic("made0", 5)

    assert grown.write_queues == 5
    assert queues_in_file(node, "made0") == 5


def test_many_at_once_get_their_answers(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    failures: list[LedgerError] = []

    def work(number: int) -> None:
        with broker_of(address) as broker:
            try:
                broker.create_topic("shared", 1 + number)
            except MessageIllegalError as error:
                assert "fewer" in str(error)
            for offset in range(1, 21):
                try:
                    broker.group_commit(f"g{number % 2}", "orders", {number // 2: offset})
                except LedgerError as error:
                    failures.append(error)

    with Producer(address) as one:
        for queue_id in range(4):
            one.send_batch("orders", [b"x"] * 20, queue_id=queue_id).result()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with broker_of(address) as broker:
        found = [broker.group_offset(f"g{number}", "orders") for number in range(2)]
        shared = broker.route("shared", create=False)

    assert failures == []
    assert found == [dict.fromkeys(range(4), 20)] * 2
    assert shared.write_queues == 8


def wait_same_tables(group: Group) -> None:
    """Until all members' files say the same."""

    def is_same() -> bool:
        tables = set()
        for member in group.up():
            rows = []
            for file in FILES:
                folder = "ledgermq" if file in OWN_FILES else "config"
                path = member.node.root / folder / file
                if not path.exists() and file in OWN_FILES:
                    continue
                if not path.exists():
                    return False
                content = decode_document(path.read_bytes())
                content.pop(APPLIED_KEY, None)
                rows.append(content)
            tables.add(json.dumps(rows, sort_keys=True))
        return len(tables) == 1

    wait_until(is_same, "the members' files to say the same", timeout_s=PATIENCE_S)


def test_a_successor_knows_what_its_leader_was_asked_for(group: Group) -> None:
    leader = group.leader()
    with producer(*group.members) as one, broker_of(group.addresses) as broker:
        one.send_batch(TOPIC, [b"x"] * 50, queue_id=1).result()
        broker.create_topic("never-sent-to", 11)
        broker.group_commit("g", TOPIC, {1: 30})
        leader.kill()
        offsets = broker.group_offset("g", TOPIC)
        route = broker.route("never-sent-to", create=False)
        broker.group_commit("g", TOPIC, {1: 40})
        leader.start()
        group.wait_equal()
        wait_same_tables(group)
    statuses = group.stop()

    assert offsets == {1: 30}
    assert route.write_queues == 11
    assert statuses == [0, 0, 0]
    for member in group.members:
        assert offsets_in_file(member.node, "g", TOPIC) == {1: 40}
        assert queues_in_file(member.node, "never-sent-to") == 11


def as_rocketmq_leaves_it(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    """A file as a broker writes it that knows nothing of a place in the log."""
    content = decode_document(path.read_bytes())
    content.pop(APPLIED_KEY)
    change(content)
    path.write_text(json.dumps(content))


def test_a_leaders_files_from_outside_become_those_of_all(group: Group) -> None:
    with broker_of(group.addresses) as broker, producer(*group.members) as one:
        one.send_batch(TOPIC, [b"x"] * 50, queue_id=1).result()
        broker.group_commit("g", TOPIC, {1: 30})
        broker.create_topic("ours", 2)
    group.wait_equal()
    wait_same_tables(group)
    group.stop()

    def add_topic(content: dict[str, object]) -> None:
        table = content["topicConfigTable"]
        assert isinstance(table, dict)
        table["theirs"] = {**table["ours"], "topicName": "theirs"}

    for member in group.members:
        as_rocketmq_leaves_it(member.node.root / "config" / "topics.json", add_topic)
    shutil.rmtree(group.members[2].node.root / "config")
    for member in group.members:
        member.start()
    wait_heard(group.members)
    with broker_of(group.addresses) as broker:
        # Whoever leads; one that has lost its files has the offsets from the log alone.
        offsets = broker.group_offset("g", TOPIC)
        broker.create_topic("later", 1)
    group.wait_equal()
    wait_same_tables(group)

    assert offsets == {1: 30}
    assert {queues_in_file(member.node, "ours") for member in group.members} == {2}


def test_a_member_whose_files_are_lost_reads_them_from_the_log(group: Group) -> None:
    with broker_of(group.addresses) as broker, producer(*group.members) as one:
        one.send_batch(TOPIC, [b"x"] * 50, queue_id=1).result()
        broker.group_commit("g", TOPIC, {1: 30})
    leader = group.leader()
    follower = group.others(leader)[0]
    follower.kill()
    shutil.rmtree(follower.node.root / "config")
    with broker_of([one.address for one in group.up()]) as broker:
        broker.group_commit("g", TOPIC, {1: 31})
    follower.start()
    follower.node.wait_ready()
    group.wait_equal()
    with broker_of(group.addresses) as broker:
        broker.group_commit("g", TOPIC, {1: 32})

    # Files are written a while after what they have to say is answered.
    wait_until(
        lambda: offsets_in_file(follower.node, "g", TOPIC) == {1: 32}, "its file to say the last"
    )
    wait_same_tables(group)


class Committer:
    """A group that commits one more each time, and looks what is known after each."""

    def __init__(self, addresses: Sequence[str], queue_id: int) -> None:
        self.acknowledged = 0
        self.wrong: list[str] = []
        self._addresses = addresses
        self._queue_id = queue_id
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with broker_of(self._addresses) as broker:
            while not self._stop.is_set():
                wanted = self.acknowledged + 1
                try:
                    broker.group_commit("g", TOPIC, {self._queue_id: wanted})
                    self.acknowledged = wanted
                    known = broker.group_offset("g", TOPIC)[self._queue_id]
                except LedgerError as error:
                    self.wrong.append(str(error))
                    return
                if known != wanted:
                    self.wrong.append(f"acknowledged {wanted}, then told {known}")


@pytest.mark.long
def test_offsets_never_go_back_while_leaders_die(group: Group) -> None:
    """A commit that was answered survives any leader's death; ``LEDGERMQ_LEADER_KILLS`` of them."""
    chance = random.Random(SEED)
    with producer(*group.members) as one:
        for queue_id in range(3):
            for _ in range(40):
                one.send_batch(TOPIC, [b"x"] * 500, queue_id=queue_id).result()
    committers = [Committer(group.addresses, queue_id) for queue_id in range(3)]
    victims: list[Member] = []
    for _ in range(KILLS):
        before = [one.acknowledged for one in committers]
        leader = group.leader()
        wait_until(
            lambda before=before: all(
                one.acknowledged > last or one.wrong
                for one, last in zip(committers, before, strict=True)
            ),
            "commits",
            timeout_s=PATIENCE_S,
        )
        threading.Event().wait(chance.random() / 20)  # anywhere within a commit, not behind it
        leader.kill()
        victims.append(leader)
        group.leader(besides=leader)
        leader.start()
        leader.node.wait_ready()
    for one in committers:
        one.stop()
    group.wait_equal()
    wait_same_tables(group)

    assert [one.wrong for one in committers] == [[]] * 3, SEED
    assert len(victims) == KILLS
    acknowledged = {number: one.acknowledged for number, one in enumerate(committers)}
    for member in group.members:
        wait_until(
            lambda node=member.node: offsets_in_file(node, "g", TOPIC) == acknowledged,
            f"the file of {member.name} to say what was acknowledged",
        )
