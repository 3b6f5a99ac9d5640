"""A writer whose broker has not told yet: its files may lack what was acknowledged.

The files of topics are up to a second older than the log, and older where a broker stands still.
Here they are put back to what they were before the changes, as after a kill.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.broker.state.broker_tables import ROWS_AT_ONCE_MAX
from ledgermq.client import Admin
from ledgermq.client.core.questions import ask
from ledgermq.formats.records.delayed_message import RealQueue, level_properties
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.transactions import HALF_TOPIC
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.wire.send_frame import Sent
from ledgermq.wire.session import Refusal
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import make_group
from tests.process.node_start import SERVE
from tests.process.port_processes import one_at_each
from tests.process.raw_producer import RawProducer
from tests.process.remoting_node import start_remoting_node
from tests.process.test_remoting_produce import fields
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

V2 = RequestCode.SEND_MESSAGE_V2
WINDOW_MS = 3_600_000
READ_ONLY = 4
TOPICS = ("gone", "closed", "once")

Answers = dict[str, Sent | Refusal]


def make_topics(admin: Admin) -> None:
    for name in TOPICS:
        admin.create_topic(name, queues=1)


def change_topics(admin: Admin) -> None:
    """One is deleted, one takes nothing any more, one stores each unique id once."""
    admin.delete_topic("gone")
    admin.run(ask("topic_alter", topic="closed", perm=READ_ONLY))
    admin.alter_topic("once", deduplication_window_ms=WINDOW_MS)


def admin_of(*addresses: str) -> Admin:
    return Admin(addresses if len(addresses) > 1 else addresses[0], timeout_s=PATIENCE_S)


@contextmanager
def at_writer(node: Node) -> Iterator[RawProducer]:
    producer = RawProducer(node.runtime)
    try:
        yield producer
    finally:
        producer.close()


def send_each(producer: RawProducer) -> Answers:
    """One message to each topic, and those that wait for their transaction, or their time."""
    answers: Answers = {}
    for topic in TOPICS:
        record = producer.record(b"again", topic=topic, unique_id="X")
        producer.socket.send_multipart(producer.frame([record], topic=topic))
        answers[topic] = producer.answer()
    for topic in ("gone", "closed"):
        half = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": topic, "REAL_QID": "0"}
        level = level_properties(3, RealQueue(topic, 0))
        for waits_in, queue_id, properties in ((HALF_TOPIC, 0, half), (DELAY_TOPIC, 2, level)):
            answers[f"{topic} by {waits_in}"] = producer.send_one(
                b"waits", topic=waits_in, queue_id=queue_id, properties=properties
            )
    return answers


def statuses(answers: Mapping[str, Sent | Refusal]) -> dict[str, str]:
    return {
        name: answer.status if isinstance(answer, Refusal) else "SENT"
        for name, answer in answers.items()
    }


NOT_YET = dict.fromkeys(
    [*TOPICS, *(f"{one} by {two}" for one in TOPICS[:2] for two in (HALF_TOPIC, DELAY_TOPIC))],
    "SERVICE_NOT_AVAILABLE",
)
REFUSALS = {"gone": "TOPIC_NOT_EXIST", "closed": "NO_PERMISSION", "once": "SENT"}
AS_ACKNOWLEDGED = {name: REFUSALS[name.split()[0]] for name in NOT_YET}


def settled(producer: RawProducer) -> Answers:
    """What becomes of the messages once the node takes them, or not, for good."""
    found: Answers = {}

    def is_settled() -> bool:
        producer.welcome = producer.hello()
        found.update(send_each(producer))
        return "SERVICE_NOT_AVAILABLE" not in statuses(found).values()

    wait_until(is_settled, "the broker to tell of topics")
    return found


def first_of(producer: RawProducer) -> Sent:
    record = producer.record(b"first", topic="once", unique_id="X")
    producer.socket.send_multipart(producer.frame([record], topic="once"))
    answer = producer.answer()
    assert isinstance(answer, Sent), answer
    return answer


def check(answers: Answers, first: Sent) -> None:
    """Topics are what was acknowledged, and what was stored is not stored again."""
    assert statuses(answers) == AS_ACKNOWLEDGED
    once = answers["once"]
    assert isinstance(once, Sent)
    assert once.spans[0].physical_offset == first.spans[0].physical_offset
    assert once.duplicates


class OldFiles:
    """The files of topics as they are now."""

    def __init__(self, node: Node) -> None:
        folder = node.root / "config"
        self._contents = {path: path.read_bytes() for path in folder.glob("topics.json*")}
        self._folder = folder

    def put_back(self) -> None:
        """As if nothing had been written since."""
        for path in self._folder.glob("topics.json*"):
            if path not in self._contents:
                path.unlink()
        for path, content in self._contents.items():
            fresh = Path(f"{path}.fresh")
            fresh.write_bytes(content)
            fresh.rename(path)


@pytest.mark.parametrize("log", ["commitlog", "dledger"])
def test_a_node_that_was_killed_takes_nothing_by_the_topics_of_its_files(
    make_node: Callable[[], Node], log: str
) -> None:
    node = make_node()
    start_client_node(node, log=log, topics={"auto_create_topic_enable": False})
    address = f"ipc://{node.runtime}"
    with admin_of(address) as admin:
        make_topics(admin)
        with at_writer(node) as producer:
            first = first_of(producer)
        old = OldFiles(node)
        change_topics(admin)
    node.signal(signal.SIGKILL)
    node.wait_end()
    old.put_back()
    node.forget_told()
    node.launch([*SERVE, str(node.config)])
    # From the first moment on, with those who insist: the writer is there long before the broker.
    wait_until((node.runtime / "produce").exists, "the writer's socket")
    with at_writer(node) as producer:
        answers = settled(producer)
    node.wait_ready()

    check(answers, first)
    assert node.stop() == 0


def test_a_writer_that_is_started_anew_waits_for_the_broker(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start_client_node(node, limits={"creations_per_s": 0})
    broker, writer = node.pid("broker"), node.pid("writer")
    with admin_of(f"ipc://{node.runtime}") as admin:
        for number in range(ROWS_AT_ONCE_MAX):
            admin.create_topic(f"t{number}", queues=1)
        make_topics(admin)
        with at_writer(node) as producer:
            first = first_of(producer)
        wait_until(lambda: "once" in (node.root / "config/topics.json").read_text(), "the file")
        change_topics(admin)
        # The file of so many is written a second later.
        os.kill(broker, signal.SIGSTOP)
    os.kill(writer, signal.SIGKILL)
    wait_until(lambda: node.pids().get("writer", writer) not in (None, 0, writer), "the next one")
    wait_until(lambda: node.child("writer")["state"] == "running", "the next writer serves")
    with at_writer(node) as producer:
        before = send_each(producer)
        os.kill(broker, signal.SIGCONT)
        after = settled(producer)

    assert statuses(before) == NOT_YET
    check(after, first)
    assert node.stop() == 0


def test_a_broker_that_is_started_anew_takes_nothing_back(make_node: Callable[[], Node]) -> None:
    """It begins with its files, and must not have the writer read what is older."""
    node = make_node()
    start_client_node(node)
    with admin_of(f"ipc://{node.runtime}") as admin:
        make_topics(admin)
        with at_writer(node) as producer:
            first = first_of(producer)
        old = OldFiles(node)
        change_topics(admin)
    broker = node.pid("broker")
    os.kill(broker, signal.SIGSTOP)
    old.put_back()
    os.kill(broker, signal.SIGKILL)
    found: list[Answers] = []
    with at_writer(node) as producer:

        def is_back() -> bool:
            found.append(send_each(producer))
            return node.pids().get("broker", broker) not in (None, 0, broker) and (
                node.child("broker")["state"] == "running"
            )

        wait_until(is_back, "the next broker")
        with admin_of(f"ipc://{node.runtime}") as admin:
            # It has told the writer of its tables before it answers this.
            admin.create_topic("new", queues=1)
        found.append(send_each(producer))

    for answers in found:
        check(answers, first)
    assert node.stop() == 0


def test_a_leader_takes_nothing_by_the_topics_of_a_broker_that_stands_still(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-memory")
    leader = group.leader()
    with admin_of(*group.addresses) as admin:
        make_topics(admin)
        with at_writer(leader.node) as producer:
            first = first_of(producer)
        group.wait_equal()
        heir = group.others(leader)[0]
        broker = heir.node.pid("broker")
        os.kill(broker, signal.SIGSTOP)
        change_topics(admin)
    handed = leader.command("raft", "transfer", heir.name, "--json")
    wait_until(lambda: heir.leads, "the hand-over")
    with at_writer(heir.node) as producer:
        before = send_each(producer)
        os.kill(broker, signal.SIGCONT)
        after = settled(producer)

    assert handed.returncode == 0
    assert statuses(before) == NOT_YET
    check(after, first)
    assert group.stop() == [0, 0, 0]


def test_rocketmqs_clients_are_told_to_go_elsewhere_meanwhile(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_remoting_node(node, remoting={"processes": 2})
    client, _ = one_at_each(node, address).values()
    wait_until(lambda: client.ask(V2, fields("orders", 0), b"x").code == 0, "a leader")
    broker, writer = node.pid("broker"), node.pid("writer")
    os.kill(broker, signal.SIGSTOP)
    os.kill(writer, signal.SIGKILL)
    wait_until(lambda: node.pids().get("writer", writer) not in (None, 0, writer), "the next one")
    meanwhile = client.ask(V2, fields("orders", 0), b"y")
    os.kill(broker, signal.SIGCONT)
    wait_until(lambda: client.ask(V2, fields("orders", 0), b"z").code == 0, "the broker to tell")

    assert meanwhile.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert node.stop() == 0
