"""The writer with raft and the dispatcher, all real, over real sockets and files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.counters import WriterCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.doorbell import Bell, Inbox
from ledgermq.ipc.orders import GrantTerm, TopicsChanged, TopicsLoaded, WritableTopic, encode
from ledgermq.model.config.settings import AccessSection, AckMode, LimitsSection, LogKind
from ledgermq.model.ids import Index, Term
from ledgermq.model.limits import BODY_SIZE_MAX
from ledgermq.store.recovery.recovery import recover_log
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.send_frame import Sent
from ledgermq.wire.session import LEADER, Refusal, Standing, decode_refused, decode_role
from tests.process.raw_producer import RawProducer
from tests.process.running import PartialNode, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def node() -> Iterator[PartialNode]:
    running = PartialNode()
    running.start()
    running.wait_ready()
    yield running
    running.close()


@pytest.fixture
def producer(node: PartialNode) -> Iterator[RawProducer]:
    client = RawProducer(node.runtime)
    yield client
    client.close()


def sent(answer: Sent | Refusal) -> Sent:
    assert isinstance(answer, Sent), answer
    return answer


def refused(answer: Sent | Refusal) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


def stored_body(node: PartialNode, physical_offset: int) -> tuple[bytes, int]:
    data = node.root / "dledger-n0" / "data"
    size = node.settings.store.mapped_file_size_commit_log or 0
    start = physical_offset - physical_offset % size
    content = (data / f"{start:020d}").read_bytes()
    message = decode_message(memoryview(content), physical_offset - start)
    assert message.physical_offset == physical_offset
    return bytes(message.body), message.queue_offset


@pytest.mark.parametrize("ack", list(AckMode))
@pytest.mark.parametrize("log", list(LogKind))
def test_an_answer_names_where_the_messages_are(ack: AckMode, log: LogKind) -> None:
    node = PartialNode(ack=ack, log=log)
    try:
        node.start()
        node.wait_ready()
        producer = RawProducer(node.runtime)
        first = sent(producer.send(b"one", b"two"))
        second = sent(producer.send(b"three"))
        wait_for(
            lambda: node.page.read_dispatched().position == node.page.read_written().position,
            "dispatch",
        )
        producer.close()

        assert [span.queue_offset for span in (*first.spans, *second.spans)] == [0, 2]
        assert node.stop() == {Role.WRITER: 0, Role.RAFT: 0, Role.DISPATCHER: 0}
        assert node.page.read_durable()[0] == node.page.read_written()
        queue = (node.root / "consumequeue" / "orders" / "0" / f"{0:020d}").read_bytes()
        offsets = [int.from_bytes(queue[at : at + 8], "big") for at in (0, 20, 40, 60)]
        assert offsets[0] == first.spans[0].physical_offset
        assert (offsets[2], offsets[3]) == (second.spans[0].physical_offset, 0)
    finally:
        node.close()


def test_queue_offsets_go_on_after_a_restart(node: PartialNode, producer: RawProducer) -> None:
    sent(producer.send(b"one", b"two"))
    node.stop()
    node.start()
    node.wait_ready()
    client = RawProducer(node.runtime)
    again = sent(client.send(b"three"))
    client.close()

    assert again.spans[0].queue_offset == 2
    assert stored_body(node, again.spans[0].physical_offset) == (b"three", 2)


def test_every_refusal_has_its_own_reason_and_harms_nobody(
    node: PartialNode, producer: RawProducer
) -> None:
    other = RawProducer(node.runtime)
    end = node.page.read_written()

    def refusal(records: list[bytes], **where: object) -> Refusal:
        producer.socket.send_multipart(producer.frame(records, **where))  # type: ignore[arg-type]
        return refused(producer.answer())

    good = producer.record(b"good")
    torn = bytearray(good)
    torn[-1] ^= 1
    wrong_crc = bytearray(producer.record(b"body" * 10))
    wrong_crc[HEADER_SIZE + 90] ^= 1
    system = refusal([producer.record(b"x", topic="LEDGERMQ_SYSTEM")], topic="LEDGERMQ_SYSTEM")
    unknown = refusal([producer.record(b"x", topic="nobody")], topic="nobody")
    queue = refusal([producer.record(b"x", queue_id=9)], queue_id=9)
    elsewhere = refusal([good, producer.record(b"x", queue_id=1)])
    body = refusal([good, bytes(wrong_crc)])
    transaction = refusal([producer.record(b"x", sys_flag=0x4)])

    assert (system.status, unknown.status) == ("NO_PERMISSION", "TOPIC_NOT_EXIST")
    assert "nobody" in unknown.reason
    assert "queues=4" in queue.reason
    assert (elsewhere.status, elsewhere.record) == ("MESSAGE_ILLEGAL", 1)
    assert "queue id" in elsewhere.reason
    assert (body.record, "body crc" in body.reason) == (1, True)
    assert "sys flag" in transaction.reason
    assert {r.stored for r in (system, unknown, queue, elsewhere, body, transaction)} == {"no"}
    assert node.page.read_written() == end
    assert sent(other.send(b"fine")).spans[0].queue_offset == 0
    other.close()


def test_a_body_above_the_limit_is_refused_with_the_limit(
    node: PartialNode, producer: RawProducer
) -> None:
    answer = refused(producer.send(bytes(1_100_000)))

    assert answer.status == "MESSAGE_ILLEGAL"
    assert "limit=1048568" in answer.reason
    assert BODY_SIZE_MAX == 4_194_304


def test_malformed_messages_are_refused_and_the_connection_lives(
    node: PartialNode, producer: RawProducer
) -> None:
    good = producer.frame([producer.record(b"good")])
    version = bytearray(good[0])
    version[3] = 9
    kind = bytearray(good[0])
    kind[4] = 77
    checksum = bytearray(good[0])
    checksum[28] ^= 1
    bad = [
        [b""],
        [b"x"],
        [b"not a header at all"],
        [bytes(version), good[1]],
        [bytes(kind), good[1]],
        [bytes(checksum), good[1]],
        [good[0]],
        [good[0], good[1][:-1]],
        [good[0][:-1], good[1]],
        [good[0], good[1], b"more", b"parts", b"than", b"any"],
    ]
    reasons = []
    for parts in bad:
        producer.socket.send_multipart(parts)
        answer = refused(producer.answer())
        reasons.append(answer.reason)

        assert answer.status == "PROTOCOL_ERROR", parts
    assert "version=9" in reasons[3]
    assert "checksum" in reasons[5]
    assert sent(producer.send(b"good")).spans[0].records == 1


def test_without_hello_nothing_is_taken(node: PartialNode, producer: RawProducer) -> None:
    frame = producer.frame([producer.record(b"x")])
    stranger = RawProducer(node.runtime, hello=False)
    stranger.socket.send_multipart(frame)
    answer = refused(stranger.answer())
    stranger.close()

    assert (answer.status, answer.retriable, answer.stored) == ("SESSION_UNKNOWN", True, "no")


def test_hello_ends_the_older_session_of_the_same_instance(node: PartialNode) -> None:
    """Else a frame left in a broken connection could be stored behind its own repetition."""
    old = RawProducer(node.runtime, instance="one")
    new = RawProducer(node.runtime, instance="one")
    late = refused(old.send(b"late"))
    first = sent(new.send(b"first"))
    displaced = node.page.read_counters(Role.WRITER)[WriterCounter.SESSIONS_DISPLACED]
    old.close()
    new.close()

    assert (late.status, late.stored) == ("SESSION_UNKNOWN", "no")
    assert displaced == 0
    assert first.spans[0].queue_offset == 0


def test_a_full_window_is_refused_and_opens_again() -> None:
    node = PartialNode(limits=LimitsSection(client_window_bytes=3_000))
    try:
        node.start()
        node.wait_ready()
        producer = RawProducer(node.runtime)
        big = producer.frame([producer.record(bytes(2_000))])
        node.hold_commits()
        producer.socket.send_multipart(big)
        producer.socket.send_multipart(producer.frame([producer.record(bytes(2_000))]))
        answer = refused(producer.answer())
        behind = [producer.record(b"x")]
        producer.socket.send_multipart(producer.frame(behind, resumed=False))
        overtaking = refused(producer.answer())
        node.go_on_committing()
        first = sent(producer.answer())
        producer.socket.send_multipart(producer.frame(behind, resumed=False))
        still = refused(producer.answer())
        later = sent(producer.send(bytes(2_000)))
        producer.close()

        assert (answer.status, answer.retriable, answer.stored) == ("WINDOW_FULL", True, "no")
        assert "limits.client_window_bytes" in answer.reason
        assert (overtaking.status, overtaking.retriable) == ("OUT_OF_TURN", True)
        assert (still.status, still.stored) == ("OUT_OF_TURN", "no")
        assert (first.spans[0].queue_offset, later.spans[0].queue_offset) == (0, 1)
    finally:
        node.close()


def test_who_begins_a_session_anew_gets_no_wider_window_by_it() -> None:
    node = PartialNode(limits=LimitsSection(client_window_bytes=3_000))
    try:
        node.start()
        node.wait_ready()
        producer = RawProducer(node.runtime)
        node.hold_commits()
        producer.socket.send_multipart(producer.frame([producer.record(bytes(2_000))]))
        producer.socket.send_multipart([encode_header(Kind.GOODBYE, 0)])
        producer.hello()
        producer.socket.send_multipart(producer.frame([producer.record(bytes(2_000))]))
        second = refused(producer.answer())
        node.go_on_committing()
        first = sent(producer.answer())
        producer.socket.send_multipart(producer.frame([producer.record(bytes(3_500))]))
        third = refused(producer.answer())
        producer.close()

        assert (second.status, third.status) == ("WINDOW_FULL", "WINDOW_FULL")
        assert first.spans[0].queue_offset == 0
    finally:
        node.close()


def test_answers_that_are_due_go_to_nobody_else_of_the_same_identity() -> None:
    node = PartialNode()
    try:
        # Without access whoever is let in is one and the same.
        node.start(access=AccessSection(enabled=True))
        node.wait_ready()
        first = os.fork()
        if first == 0:
            _send_one_and_wait(node)
        taken = node.page.read_counters
        wait_for(lambda: taken(Role.WRITER)[WriterCounter.FRAMES] == 1, "a frame")
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        other, early = _another_of_the_name(node)
        node.go_on_committing()
        kinds = [Kind.REFUSED]
        while kinds[-1] is Kind.REFUSED:
            kinds.append(decode_header(other.ask()[0]).kind)
        other.welcome = other.hello()
        stored = sent(other.send(b"another one's"))
        other.close()

        assert (early.retriable, early.stored) == (True, "no")
        assert "another client" in early.reason
        assert kinds[-1] is Kind.WELCOME
        assert stored.spans[0].queue_offset == 1
    finally:
        node.close()


def _another_of_the_name(node: PartialNode) -> tuple[RawProducer, Refusal]:
    """A client with the name of the one that has gone, and what it was answered.

    Until ZeroMQ has seen the end of the other connection it hears nothing of this one.
    """
    while True:
        client = RawProducer(node.runtime, identity=b"known", hello=False)
        try:
            return client, decode_refused(client.ask(timeout_ms=1_000)[1])
        except TimeoutError:
            client.close()


def _send_one_and_wait(node: PartialNode) -> None:
    """What another process does: nothing is committed any more, and its frame is not answered."""
    try:
        client = RawProducer(node.runtime, identity=b"known")
        node.hold_commits()
        client.socket.send_multipart(client.frame([client.record(b"mine")]))
        signal.pause()
    finally:
        os._exit(1)


@pytest.mark.parametrize("victim", [Role.WRITER, Role.RAFT, Role.DISPATCHER])
def test_the_others_go_on_when_a_process_is_killed(node: PartialNode, victim: Role) -> None:
    before = RawProducer(node.runtime)
    sent(before.send(b"before"))
    before.close()
    term = node.page.read_grant().term
    node.kill(victim)
    node.start(victim)
    wanted = term + 1 if victim is Role.RAFT else term
    wait_for(lambda: node.page.read_grant()[:2] == (wanted, True), "the node to lead")
    after = RawProducer(node.runtime)

    def stored() -> bool:
        answer = after.send(b"after")
        return isinstance(answer, Sent) and answer.spans[0].queue_offset >= 1

    wait_for(stored, "the node to store again")
    wait_for(
        lambda: node.page.read_dispatched().position == node.page.read_written().position,
        "dispatch",
    )
    after.close()

    assert node.page.read_grant().term == wanted
    assert node.stop() == {Role.WRITER: 0, Role.RAFT: 0, Role.DISPATCHER: 0}
    log = recover_log(
        node.root / "dledger-n0" / "data",
        node.root / "dledger-n0" / "index",
        file_size=None,
        checkpoint=None,
        progress=lambda _done, _total: None,
    )
    assert log.end.index_ == node.page.read_written().index


def test_clients_are_told_of_the_next_term_and_keep_their_session(
    node: PartialNode, producer: RawProducer
) -> None:
    sent(producer.send(b"before"))
    term = node.page.read_grant().term
    node.kill(Role.RAFT)
    node.start(Role.RAFT)
    wait_for(lambda: node.page.read_grant()[:2] == (term + 1, True), "the node to lead")
    wait_for(lambda: isinstance(producer.send(b"after"), Sent), "the node to store again")

    assert producer.told[-1] == Standing(LEADER, term + 1, "n0")
    assert not any(standing.leads for standing in producer.told[:-1] if standing.term != term)


def test_after_the_term_of_another_node_the_sessions_of_the_own_one_are_over(
    node: PartialNode, producer: RawProducer
) -> None:
    """Else a frame of then could be stored behind its repetition, which the other one has."""
    sent(producer.send(b"before"))
    term = node.page.read_grant().term
    node.kill(Role.RAFT)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    raft = Bell(context, node.runtime, node.page, Role.WRITER)
    end = node.page.read_written()
    grant = encode(GrantTerm(Term(term + 2), end.index, end.term, 2**62))
    start = node.page.read_process(Role.WRITER).generation
    tables = encode(TopicsChanged(1, term=term + 2, writer_start=start))
    try:
        wait_for(lambda: raft.send(grant) and producer.socket.poll(100) > 0, "the writer to tell")
        begins = decode_role(producer.socket.recv_multipart()[1])
        # It leads once it knows that its topics are those of all.
        wait_for(lambda: raft.send(tables) and producer.socket.poll(100) > 0, "the writer to lead")
    finally:
        raft.close()
        context.destroy(linger=0)
    told = producer.socket.recv_multipart()
    late = refused(producer.send(b"late"))
    welcome = producer.hello()

    assert decode_header(told[0]).kind is Kind.ROLE
    assert not begins.leads
    assert decode_role(told[1]) == welcome.standing == Standing(LEADER, term + 2, "n0")
    assert (late.status, late.stored) == ("SESSION_UNKNOWN", "no")


def is_closed(answer: Refusal | Sent) -> bool:
    return isinstance(answer, Refusal) and answer.status == "NO_PERMISSION"


def test_nothing_is_taken_before_the_tables_are_those_of_all(node: PartialNode) -> None:
    """A topic that was deleted or closed, or has a window, may look otherwise in the file."""
    node.stop_telling()
    node.kill(Role.WRITER)
    term = node.page.read_grant().term
    start = node.page.read_process(Role.WRITER).generation + 1
    node.start(Role.WRITER)
    wait_for(lambda: node.page.read_process(Role.WRITER).generation == start, "the next writer")
    producer = RawProducer(node.runtime)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    broker, answers = (
        Bell(context, node.runtime, node.page, Role.WRITER),
        Inbox(context, node.runtime, Role.BROKER),
    )

    def become(order: TopicsChanged, expected: Callable[[Refusal | Sent], bool]) -> None:
        """Have the order taken: an answer may be that to an earlier question."""
        if not expected(tell(order)):
            wait_for(lambda: expected(producer.send(b"one")), "the order to be taken")

    def tell(order: TopicsChanged) -> Refusal | Sent:
        wait_for(lambda: broker.send(encode(order)), "the writer's inbox")
        # Behind it in the same inbox: it has taken the order when it answers this, which it does
        # for nobody as long as it has not found the inbox of answers again.
        behind, order_taken = TopicsChanged(99, 98, term, start, {}), TopicsLoaded(0, term, start)
        wait_for(
            lambda: (
                broker.send(encode(behind))
                and encode(order_taken) in answers.drain(answers.sources)
            ),
            "an answer",
        )
        return producer.send(b"one")

    try:
        assert producer.welcome is not None
        welcome = producer.welcome.standing
        wait_for(lambda: "waits for" in refused(producer.send(b"one")).reason, "the grant")
        lacks = [
            tell(TopicsChanged(5, term=term, writer_start=start - 1)),
            tell(TopicsChanged(5, term=term - 1, writer_start=start)),
            tell(TopicsChanged(4, term=term, writer_start=start)),
            tell(TopicsChanged(6, 6, term, start, {"orders": None})),
        ]
        gone = {"orders": WritableTopic(0), "other": WritableTopic(4)}
        become(TopicsChanged(7, 5, term, start, gone), is_closed)
        # A broker that was just started, and has not read the log: it knows what the file says.
        older = tell(TopicsChanged(8, term=0, writer_start=start))
        opened = TopicsChanged(9, 7, term, start, {"orders": WritableTopic(4)})
        become(opened, lambda answer: isinstance(answer, Sent))
    finally:
        broker.close()
        answers.close()
        context.destroy(linger=0)
        producer.close()

    assert not welcome.leads
    for answer in lacks:
        refusal = refused(answer)
        assert (refusal.status, refusal.stored) == ("SERVICE_NOT_AVAILABLE", "no")
        assert refusal.retriable
        assert "waits for its broker" in refusal.reason
    assert is_closed(older)
    assert producer.told[-1] == Standing(LEADER, term, "n0")


@pytest.mark.parametrize(("more", "later"), [(1, 0), (0, 1), (-1, 0)])
def test_a_term_that_was_won_with_another_log_is_not_used(
    node: PartialNode, producer: RawProducer, more: int, later: int
) -> None:
    """It would stamp in a later term in place of what other members hold."""
    sent(producer.send(b"before"))
    end, term = node.page.read_written(), node.page.read_grant().term
    node.kill(Role.RAFT)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    raft = Bell(context, node.runtime, node.page, Role.WRITER)
    order = GrantTerm(Term(term + 1), Index(end.index + more), Term(end.term + later), 2**62)
    grant = encode(order)
    try:
        wait_for(lambda: raft.send(grant) and producer.socket.poll(100) > 0, "the writer to tell")
    finally:
        raft.close()
        context.destroy(linger=0)
    told = decode_role(producer.socket.recv_multipart()[1])
    late = refused(producer.send(b"not stored"))

    assert not told.leads
    assert (late.status, late.stored) == ("SERVICE_NOT_AVAILABLE", "no")
    assert node.page.read_written() == end


def test_a_frame_sent_again_is_stored_once(node: PartialNode, producer: RawProducer) -> None:
    records = [producer.record(b"a"), producer.record(b"b"), producer.record(b"c")]
    producer.socket.send_multipart(producer.frame(records[:2]))
    first = sent(producer.answer())
    node.kill(Role.WRITER)
    node.start(Role.WRITER)
    again = RawProducer(node.runtime)
    wait_for(lambda: isinstance(again.send(b"probe", queue_id=1), Sent), "the writer")
    again.socket.send_multipart(again.frame(records, retry=True))
    answer = sent(again.answer())
    again.close()
    found, added = answer.spans
    second = found.physical_offset + len(records[0])
    physical = [found.physical_offset, second, added.physical_offset]

    assert [span[:2] for span in answer.spans] == [(0, 2), (2, 1)]
    assert (found.queue_offset, added.queue_offset) == (0, 2)
    assert found == first.spans[0]
    assert [stored_body(node, at) for at in physical] == [(b"a", 0), (b"b", 1), (b"c", 2)]


def test_a_frame_that_was_stored_is_answered_with_the_time_of_then(
    node: PartialNode, producer: RawProducer
) -> None:
    records = [producer.record(b"a"), producer.record(b"b")]
    producer.socket.send_multipart(producer.frame(records))
    first = sent(producer.answer())
    wait_for(lambda: time.time_ns() // 1_000_000 > first.store_timestamp, "another millisecond")
    producer.socket.send_multipart(producer.frame(records, retry=True))

    assert sent(producer.answer()).store_timestamp == first.store_timestamp


def test_a_client_that_is_gone_does_not_stop_the_writer(
    node: PartialNode, producer: RawProducer
) -> None:
    leaver = RawProducer(node.runtime)
    leaver.socket.send_multipart(leaver.frame([leaver.record(b"bye")]))
    leaver.close()

    assert sent(producer.send(b"still here")).spans[0].records == 1


def test_the_term_survives_and_grows(node: PartialNode) -> None:
    terms = [node.page.read_grant().term]
    for _ in range(2):
        node.stop()
        node.start()
        wait_for(lambda: node.page.read_grant().term > terms[-1], "the next term")
        node.wait_ready()
        terms.append(node.page.read_grant().term)

    assert terms == [1, 2, 3]
    assert b"currTerm=3" in (node.root / "dledger-n0" / "currterm").read_bytes()


def test_a_java_directory_is_gone_on_with(golden_copy: object) -> None:
    root = golden_copy("gd0")  # type: ignore[operator]
    node = PartialNode(root=Path(root), file_size=1_048_576)
    node.settings = replace(
        node.settings, store=replace(node.settings.store, max_hash_slot_num=500, max_index_num=400)
    )
    try:
        node.start()
        node.wait_ready()
        producer = RawProducer(node.runtime)
        answer = sent(_send_to(producer, "plain0", 0))
        producer.close()

        assert answer.term == 2
        assert answer.spans[0].queue_offset > 0
        assert node.stop()[Role.DISPATCHER] == 0
    finally:
        node.close()


def _send_to(producer: RawProducer, topic: str, queue_id: int) -> Sent | Refusal:
    record = producer.record(b"new", topic=topic, queue_id=queue_id)
    producer.socket.send_multipart(producer.frame([record], topic=topic, queue_id=queue_id))
    return producer.answer()
