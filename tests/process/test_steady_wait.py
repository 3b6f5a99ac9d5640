"""What a writer does where it waits is what it does in a turn: order, answers, and what is left."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby

import psutil
import pytest

from ledgermq.client import Consumer, Producer
from ledgermq.formats.kernels.kernel import compiled
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.send_frame import SendRun, Sent, decode_sent
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Loopback, Member, make_group, producer
from tests.process.raw_stream import RawStream
from tests.process.test_followed_runs import run_of, wait_runs
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

KINDS = ["commitlog", "dledger", "group"]


@pytest.fixture(params=KINDS)
def leading(request: pytest.FixtureRequest, make_node: Callable[[], Node]) -> Node:
    """A node that leads in a run: alone with either log, or with two others."""
    if request.param == "group":
        group = make_group(make_node, ack="majority-memory")
        wait_runs(group)
        return group.leader().node
    node = make_node()
    start_client_node(node, log=request.param)
    member = Member(node, "n0")
    wait_until(lambda: run_of(member) > 0, "a run")
    return node


@pytest.fixture
def stream(leading: Node) -> Iterator[RawStream]:
    with closing(RawStream(leading.runtime)) as made:
        yield made


def read_all(node: Node, count: int, queue: int = 0) -> list[bytes]:
    """The first ``count`` bodies of a queue of the topic that the tests here send to."""
    with Consumer(f"ipc://{node.runtime}", topic=TOPIC, start="first", queues=[queue]) as consumer:
        messages = iter(consumer)
        return [bytes(next(messages).body) for _ in range(count)]


def test_frames_of_all_kinds_keep_their_order(leading: Node, stream: RawStream) -> None:
    chance = random.Random(46)
    said = bytearray()
    stored: dict[int, list[bytes]] = {0: [], 1: []}
    kinds: dict[int, tuple[str, list[int]]] = {}
    often = ["lone"] * 6 + ["several"] * 2 + ["queues"] * 2
    for number in range(300):
        kind = chance.choice([*often, "large", "repeated", "resumed", "nowhere", "damaged"])
        body = b"%d %s" % (number, chance.randbytes(chance.choice([1, 100, 5_000])))
        # A large one is read in several parts, also where it comes in one.
        records = {"several": chance.randrange(2, 9), "queues": 7, "large": 60}.get(kind, 1)
        bodies = [body + b" %d" % record for record in range(records)]
        topic = "nothing-of-the-kind" if kind == "nowhere" else TOPIC
        queues = [0, 0, 1, 1, 1, 0, 1] if kind == "queues" else [0] * records
        parts = stream.frame(
            [
                stream.record(one, topic=topic, queue_id=queue)
                for one, queue in zip(bodies, queues, strict=True)
            ],
            runs=[SendRun(len(list(run)), queue, topic.encode()) for queue, run in groupby(queues)],
            retry=kind == "repeated",
            resumed=kind in ("resumed", "repeated"),
        )
        if kind == "damaged":
            parts[1] = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
        if kind not in ("nowhere", "damaged"):
            for one, queue in zip(bodies, queues, strict=True):
                stored[queue].append(one)
        kinds[decode_header(parts[0]).request_id] = kind, queues
        said += stream.message(parts)
    at = 0
    while at < len(said):
        # Whole frames, several at once, and pieces.
        size = chance.choice([1, 7, 500, 1_500, 6_000, 40_000])
        stream.stream.send_bytes(bytes(said[at : at + size]))
        at += size

    offsets: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(len(kinds)):
        # A refusal comes at once, and what is stored waits for its commit.
        answer, *_ = stream.receive()
        header = decode_header(answer)
        kind, queues = kinds.pop(header.request_id)
        assert (header.kind is Kind.SENT) == (kind not in ("nowhere", "damaged")), kind
        if header.kind is Kind.SENT:
            for span in decode_sent(answer).spans:
                (queue,) = set(queues[span.first : span.first + span.records])
                offsets[queue] += range(span.queue_offset, span.queue_offset + span.records)
    for queue, all_of_it in stored.items():
        assert offsets[queue] == list(range(len(all_of_it)))
        assert read_all(leading, len(all_of_it), queue) == all_of_it


def test_what_is_no_frame_ends_its_connection_alone(leading: Node, stream: RawStream) -> None:
    with closing(RawStream(leading.runtime)) as other:
        parts = stream.frame([stream.record(b"whole")], resumed=False)
        begun = stream.message(parts) + b"\xff\xff\xff\xff\xff\xff\xff\xff" + bytes(100)
        stream.stream.send_bytes(begun)
        with pytest.raises(ConnectionResetError):
            while True:
                stream.answer()
        other.stream.send_multipart(other.frame([other.record(b"goes on")], resumed=False))
        answer = other.answer()
        assert isinstance(answer, Sent)
    # What came with it was stored, or has gone with its connection.
    before = answer.spans[0].queue_offset
    assert read_all(leading, before + 1) == [*[b"whole"][:before], b"goes on"]


def bound_file_size(pid: int, size: int) -> None:
    """Writes behind ``size`` fail from now on."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_what_cannot_be_written_is_taken_in_a_turn(
    make_node: Callable[[], Node], is_leader: bool
) -> None:
    group = make_group(make_node, ack="majority-memory")
    with producer(*group.members) as one:
        bodies = [b"before %d" % number for number in range(20)]
        for body in bodies:
            one.send(TOPIC, body, queue_id=0).result(PATIENCE_S)
        followers = wait_runs(group)
        leader = next(member for member in group.members if member not in followers)
        victim = leader if is_leader else followers[0]
        bound_file_size(victim.node.pid("writer"), 1)

        for number in range(20):
            bodies.append(b"behind %d" % number)
            one.send(TOPIC, bodies[-1], queue_id=0).result(PATIENCE_S)
        # A disk that refuses what it has blocks for ends a node: an operator has to look.
        victim.node.wait_end()
        victim.start()
    group.wait_read(set(bodies))
    group.wait_equal()
    assert group.has_one_log()


class PlainOthers(Loopback):
    """All members but the first one have plain kernels."""

    def prefix(self, member: int) -> list[str]:
        return ["env", "LEDGERMQ_PURE=1"] if member else []


@pytest.mark.skipif(not compiled, reason="all members are plain")
def test_plain_and_compiled_members_have_one_log(make_node: Callable[[], Node]) -> None:
    group = make_group(make_node, ack="majority-memory", network=PlainOthers(3))
    chance = random.Random(47)
    bodies: list[bytes] = []
    with producer(*group.members) as one:
        for turn in range(3):
            wait_runs(group)
            sends = []
            for number in range(200):
                bodies.append(
                    b"%d %d " % (turn, number) + chance.randbytes(chance.choice([3, 9_000]))
                )
                sends.append(one.send(TOPIC, bodies[-1]))
                if chance.random() < 0.3:
                    sends[-1].result(PATIENCE_S)
            for sent in sends:
                sent.result(PATIENCE_S)
            leader = group.leader()
            following = group.others(leader)[turn % 2]
            leader.command("raft", "transfer", following.name, "--timeout", str(PATIENCE_S))
    group.wait_read(set(bodies))
    group.wait_equal()
    assert group.has_one_log()


def test_a_producer_that_does_not_read_gets_its_answers_later(
    leading: Node, stream: RawStream
) -> None:
    # Far more than a socket holds, and fewer than a client may leave unread.
    count = 3_000
    frame = [stream.message(stream.frame([stream.record(b"x")], resumed=False)) for _ in range(8)]
    with Producer(f"ipc://{leading.runtime}") as other:
        for _ in range(count // len(frame)):
            stream.stream.send_bytes(b"".join(frame))
            frame = [
                stream.message(stream.frame([stream.record(b"x")], resumed=False)) for _ in range(8)
            ]
        other.send(TOPIC, b"goes on", queue_id=1).result(PATIENCE_S)
    answers = [stream.answer() for _ in range(count)]
    assert all(isinstance(answer, Sent) for answer in answers)
    assert psutil.pid_exists(leading.pid("writer"))
