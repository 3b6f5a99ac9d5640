"""Real nodes whose log has lost what pieces have: they go on, whatever becomes of the place."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client import (
    Admin,
    Consumer,
    ConsumerOptions,
    MessageFilter,
    OutgoingMessage,
    Producer,
)
from ledgermq.client.blocking.share_consumer import ShareConsumer
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import KeyMissingError, LedgerError, TimedOutError
from ledgermq.pipeline.pieces.topic_keys import KEYS_VARIABLE, key_name
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.pull_frame import PullStatus
from ledgermq.wire.session import decode_refused
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.process.raw_consumer import PullAnswer, RawConsumer
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import beat, offset_fields, pull_fields
from tests.process.test_retention import set_retention, wait_deleted
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

QUEUES, EACH = 4, 400
BODY = random.Random(50).randbytes(10_000)
"""No compression makes less of it."""

KEPT = "11MiB"
"""Of the 16 MiB that are written."""

WAITS_FOR_NOTHING = {"archive_wait_below": "100000TiB"}
"""A disk that has not so much left counts as too full to wait for pieces."""

WAIT_MS = 4_000
"""A pull that has no answer by then is refused."""

TAGS = ("red", "green", None)
SHORT = ConsumerOptions(hold_ms=100, timeout_s=4.0)


class Cold:
    """A node whose first messages are in pieces alone, and the records that they had in the log."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.place = node.folder / "pieces"
        cold = {"place": str(self.place), "wait_ms": WAIT_MS, "refresh_s": 1}
        self.port = start_remoting_node(node, file_size=262_144, cold=cold)
        write(node)
        self.records = [all_records(node, queue) for queue in range(QUEUES)]
        seal(node, self.place)
        delete_oldest(node)

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = self.node.status()["counters"]["cold"]
        return found

    def log_begin(self) -> int:
        """Position of the first message that the log has."""
        with CursorPage.attach(self.node.runtime / "cursors") as page:
            return page.read_log_begin().position

    def forget_cache(self) -> None:
        """Have the process begin with nothing but the manifest."""
        for path in (self.node.root / "ledgermq" / "cold").glob("*-*-*"):
            path.unlink()
        self.kill()

    def kill(self) -> None:
        before = self.node.pid("cold")
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.node.pids().get("cold", before) != before, "the next one")


def write(node: Node) -> None:
    with Producer(node.address) as made:
        for first in range(0, EACH, 20):
            batch = [message_of(number) for number in range(first, first + 20)]
            for queue in range(QUEUES):
                made.send_batch(TOPIC, batch, queue_id=queue).result()


def seal(node: Node, place: Path, *words: str) -> None:
    store, runtime = str(node.root), str(node.runtime)
    command = ["piece", "seal", store, "--to", str(place), "--runtime-dir", runtime, *words]
    assert main(command) == 0


def delete_oldest(node: Node, *, kept: str = KEPT) -> None:
    """Have what is beyond ``kept`` deleted, and the broker know it."""
    member = Member(node, "n7")
    set_retention(member, bytes_max=kept)
    wait_deleted(member)
    with CursorPage.attach(node.runtime / "cursors") as page:
        wait_until(lambda: page.read_log_begin().position > 0, "it to be told")


def message_of(number: int) -> OutgoingMessage:
    return OutgoingMessage(
        b"%06d" % number + BODY,
        tag=TAGS[number % 3],
        keys=(f"key-{number}", "all-of-them"),
        properties={"size": str(number)},
    )


def all_records(node: Node, queue: int, offset: int = 0) -> list[bytes]:
    """The records of a queue as our clients are given them, and that there was none passed over."""
    found: list[bytes] = []
    client = RawConsumer(node.runtime)
    try:
        client.hello()
        while True:
            answer = answer_to(client, queue, offset)
            if answer.status is PullStatus.NO_MATCHED_MESSAGE:
                # Its file went just then.
                assert answer.pulled.next_offset == offset
                continue
            if answer.status is not PullStatus.FOUND:
                assert answer.status is PullStatus.OFFSET_OVERFLOW_ONE
                return found
            assert answer.pulled.next_offset == offset + len(answer.records)
            assert answer.pulled.begin == 0
            offset = answer.pulled.next_offset
            found += answer.records
    finally:
        client.close()


def answer_to(client: RawConsumer, queue: int, offset: int) -> PullAnswer:
    """The answer to a pull, which is asked again where it is refused, as our clients do it: beside
    other tests the process may be long in starting.
    """

    def answered() -> PullAnswer | None:
        client.send_pull(TOPIC, queue, offset, messages=64)
        parts = client.receive()
        if decode_header(parts[0]).kind is not Kind.REFUSED:
            return client.answered(parts)
        assert decode_refused(parts[1]).retriable
        return None

    found: PullAnswer = wait_until(answered, "an answer")
    return found


@pytest.fixture(scope="module")
def cold() -> Iterator[Cold]:
    with nodes_made(Node) as make:
        yield Cold(make())


def test_our_clients_get_the_very_records_from_the_beginning(cold: Cold) -> None:
    assert [all_records(cold.node, queue) for queue in range(QUEUES)] == cold.records
    assert cold.counters()["pulls"] > 0

    with Consumer(cold.node.address, topic=TOPIC, start="first", options=SHORT) as consumer:
        seen: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
        while sum(map(len, seen.values())) < QUEUES * EACH:
            batch = consumer.poll(PATIENCE_S)
            assert len(batch)
            seen[batch.queue_id] += [bytes(message.body)[:6] for message in batch]
        assert not consumer.resets
    assert seen == {queue: [b"%06d" % number for number in range(EACH)] for queue in range(QUEUES)}


def test_rocketmqs_clients_pull_the_very_records_from_the_least_offset(cold: Cold) -> None:
    client = RemotingClient(cold.port)
    beat(client, "one", TOPIC)
    for queue in range(QUEUES):
        reply = client.ask(RequestCode.GET_MIN_OFFSET, offset_fields(TOPIC, queue))
        offset, found = int(reply.fields["offset"]), bytearray()
        assert offset == 0
        while True:
            reply = client.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, queue, offset))
            if reply.code == ResponseCode.SYSTEM_ERROR:
                assert "does not answer in time" in str(reply.remark)
                continue
            if reply.code != ResponseCode.SUCCESS:
                break
            assert reply.fields["minOffset"] == "0"
            offset = int(reply.fields["nextBeginOffset"])
            found += bytes(reply.body)
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        assert bytes(found) == b"".join(cold.records[queue])


def test_tags_and_expressions_choose_among_old_messages(cold: Cold) -> None:
    for wanted, numbers in (
        (MessageFilter.by_tags("red"), range(0, EACH, 3)),
        (MessageFilter.by_sql("size BETWEEN 3 AND 7 OR TAGS = 'green'"), None),
    ):
        chosen = (
            list(numbers)
            if numbers is not None
            else [one for one in range(EACH) if 3 <= one <= 7 or one % 3 == 1]
        )
        with Consumer(
            cold.node.address, topic=TOPIC, queues=[1], start="first", filter=wanted, options=SHORT
        ) as consumer:
            seen: list[int] = []
            while len(seen) < len(chosen):
                batch = consumer.poll(PATIENCE_S)
                assert len(batch)
                seen += [int(bytes(message.body)[:6]) for message in batch]
        assert seen == chosen


def test_lag_and_resets_know_the_beginning_that_is_cold(cold: Cold) -> None:
    with Admin(cold.node.address) as admin:
        assert [row.begin for row in admin.topic(TOPIC).queues] == [0] * QUEUES
        admin.reset_offsets("audit", TOPIC, to="first", create=True)
        lag = admin.lag("audit", TOPIC)
    assert [(row.begin, row.offset, row.lag) for row in lag] == [(0, 0, EACH)] * QUEUES


def test_times_lead_to_messages_that_are_cold(cold: Cold) -> None:
    times = [decode_message(memoryview(record)).store_timestamp for record in cold.records[1]]
    wanted_ms = times[50]
    first = times.index(wanted_ms)
    with Consumer(
        cold.node.address, topic=TOPIC, queues=[1], start=wanted_ms, options=SHORT
    ) as consumer:
        assert consumer.poll(PATIENCE_S)[0].queue_offset == first
    with Admin(cold.node.address) as admin:
        (moved,) = admin.reset_offsets(
            "timed", TOPIC, to="time", value=wanted_ms, queues=[1], create=True
        )
        assert moved.new == first
    client = RemotingClient(cold.port)
    fields = offset_fields(TOPIC, 1, timestamp=wanted_ms)

    def found() -> Command | None:
        reply = client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        if reply.code != ResponseCode.SUCCESS:
            assert "cold storage away" in str(reply.remark)
            return None
        return reply

    assert int(wait_until(found, "the offset").fields["offset"]) == first
    # Of a time before all messages, and of one that the log has.
    with Consumer(cold.node.address, topic=TOPIC, queues=[1], start=1, options=SHORT) as oldest:
        assert oldest.poll(PATIENCE_S)[0].queue_offset == 0
    with Consumer(
        cold.node.address, topic=TOPIC, queues=[1], start=times[-1], options=SHORT
    ) as newest:
        assert newest.poll(PATIENCE_S)[0].queue_offset == times.index(times[-1])


def test_a_place_that_is_away_is_named_and_nothing_is_passed_over(cold: Cold) -> None:
    cold.forget_cache()
    away = cold.place.with_name("unmounted")
    cold.place.rename(away)
    try:
        with Consumer(
            cold.node.address, topic=TOPIC, queues=[0], start={0: 0}, options=SHORT
        ) as consumer:
            with pytest.raises(TimedOutError) as refused:
                consumer.poll(PATIENCE_S)
            assert "cold storage away since 20" in str(refused.value)
            assert str(cold.place) in str(refused.value)
            assert cold.counters()["away_since"] > 0
            # Who reads what is in the log does not wait.
            assert all_records(cold.node, 0, EACH - 5) == cold.records[0][-5:]
            away.rename(cold.place)
            seen: list[bytes] = []
            until = time.monotonic() + PATIENCE_S
            while len(seen) < EACH:
                assert time.monotonic() < until, len(seen)
                # The place is looked for again now and then, and a busy machine reads it late.
                with suppress(TimedOutError):
                    seen += [bytes(message.body)[:6] for message in consumer.poll(PATIENCE_S)]
            assert not consumer.resets
        assert seen == [b"%06d" % number for number in range(EACH)]
        assert cold.counters()["away_since"] == 0
    finally:
        if away.exists():
            away.rename(cold.place)


def test_who_reads_the_log_does_not_wait_for_a_process_that_hangs(cold: Cold) -> None:
    pid = cold.node.pid("cold")
    cold_client, hot_client = RawConsumer(cold.node.runtime), RawConsumer(cold.node.runtime)
    os.kill(pid, signal.SIGSTOP)
    try:
        cold_client.hello()
        hot_client.hello()
        cold_client.send_pull(TOPIC, 0, 0)
        began = time.monotonic()
        for _ in range(20):
            assert hot_client.pull(TOPIC, 0, EACH - 1).records == cold.records[0][-1:]
        assert time.monotonic() - began < WAIT_MS / 1_000
        refusal = cold_client.refusal()
        assert refusal.status == "COLD_STORAGE_AWAY"
        assert "it does not answer in time" in refusal.reason
        assert refusal.retry_after_ms > 0
        os.kill(pid, signal.SIGCONT)
        assert answer_to(cold_client, 0, 0).records[0] == cold.records[0][0]
    finally:
        os.kill(pid, signal.SIGCONT)
        cold_client.close()
        hot_client.close()


def test_one_connection_may_wait_for_so_many_and_the_next_is_refused(cold: Cold) -> None:
    pid = cold.node.pid("cold")
    client = RawConsumer(cold.node.runtime)
    os.kill(pid, signal.SIGSTOP)
    try:
        client.hello()
        for number in range(33):
            client.send_pull(TOPIC, number % QUEUES, 0)
        refusal = client.refusal()
        assert "cold.pulls_per_client" in refusal.reason
        assert refusal.retriable
    finally:
        os.kill(pid, signal.SIGCONT)
        client.close()


@pytest.mark.long
def test_killed_again_and_again_it_passes_nothing_over(cold: Cold) -> None:
    seen: list[bytes] = []
    options = ConsumerOptions(messages_max=16, prefetch=1)
    with Consumer(
        cold.node.address, topic=TOPIC, queues=[2], start="first", options=options
    ) as consumer:
        while len(seen) < EACH:
            batch = consumer.poll(PATIENCE_S)
            seen += [bytes(message.body)[:6] for message in batch]
            if len(seen) % 64 < 16 and len(seen) < 200:
                cold.kill()
    assert seen == [b"%06d" % number for number in range(EACH)]


def test_a_flipped_byte_is_named_and_what_is_mended_is_read(cold: Cold) -> None:
    (piece, *_) = sorted((cold.place / "pieces").iterdir())
    content = piece.read_bytes()
    # In the first row group.
    piece.chmod(0o600)
    piece.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    client = RawConsumer(cold.node.runtime)
    try:
        # Only then: the next process may be asked at once, and keep what it has read.
        cold.forget_cache()
        client.hello()

        def reason() -> str:
            client.send_pull(TOPIC, 0, 0)
            refusal = client.refusal()
            assert refusal.retriable
            return "" if "not answer in time" in refusal.reason else refusal.reason

        told = wait_until(reason, "the piece to be named")
        assert "part of a piece is not what was sealed" in told
        assert str(piece) in told
        assert "group 0" in told
        piece.write_bytes(content)
        assert answer_to(client, 0, 0).records[0] == cold.records[0][0]
    finally:
        piece.write_bytes(content)
        client.close()


def test_what_neither_log_nor_pieces_have_is_gone_as_it_always_was(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    place = node.folder / "pieces"
    cold = {"place": str(place), "refresh_s": 1}
    start_client_node(node, file_size=262_144, cold=cold, retention=WAITS_FOR_NOTHING)
    write(node)
    delete_oldest(node)
    client = RawConsumer(node.runtime)
    try:
        client.hello()

        # Nobody has sealed anything, as far as anybody knows.
        def is_told() -> bool:
            client.send_pull(TOPIC, 0, 0)
            return "no manifest of pieces there" in client.refusal().reason

        wait_until(is_told, "the place to be named")
        client.send_call("queue", topic=TOPIC, queue=0)
        assert "cold storage away" in client.refusal().reason
        seal(node, place)

        def moved() -> PullAnswer | None:
            client.send_pull(TOPIC, 0, 0)
            parts = client.receive()
            return None if decode_header(parts[0]).kind is Kind.REFUSED else client.answered(parts)

        answer = wait_until(moved, "the offset to move")
        with Admin(node.address) as admin:
            first = admin.topic(TOPIC).queues[0].begin
        with Consumer(node.address, topic=TOPIC, queues=[0], start="first") as consumer:
            assert consumer.poll(PATIENCE_S)[0].queue_offset == first
        assert answer.status is PullStatus.OFFSET_TOO_SMALL
        assert 0 < answer.pulled.next_offset == answer.pulled.begin == first
    finally:
        client.close()


@pytest.mark.long
def test_what_is_dropped_from_the_pieces_is_gone_for_who_reads_on(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    place = node.folder / "pieces"
    cold = {"place": str(place), "wait_ms": WAIT_MS, "refresh_s": 1}
    start_client_node(node, file_size=262_144, cold=cold)
    for _ in range(2):
        write(node)
        seal(node, place)
    # Of them indexes have eleven.
    delete_oldest(node, kept="14MiB")
    before = len(all_records(node, 0))
    capsys.readouterr()
    # All but those of the last piece, of which the log has the first ones still.
    assert main(["piece", "prune", str(place), "--keep", f"{TOPIC}=1ms", "--json"]) == 0
    dropped: int = json.loads(capsys.readouterr().out)["records"][TOPIC]
    client = RawConsumer(node.runtime)
    try:
        client.hello()

        def moved_of(queue: int) -> PullAnswer | None:
            answer = answer_to(client, queue, 0)
            return answer if answer.status is not PullStatus.FOUND else None

        # By the manifest that it read last the process has it, as long as it is in its memory.
        moved = [
            wait_until(partial(moved_of, queue), "a later manifest") for queue in range(QUEUES)
        ]
    finally:
        client.close()
    first = moved[0].pulled.next_offset

    assert before == 2 * EACH
    assert {one.status for one in moved} == {PullStatus.OFFSET_TOO_SMALL}
    assert EACH < first < before
    assert sum(one.pulled.next_offset for one in moved) <= dropped
    with Consumer(node.address, topic=TOPIC, queues=[0], start="first") as consumer:
        messages = iter(consumer)
        kept = [next(messages).queue_offset for _ in range(before - first)]
    assert kept == list(range(first, before))


def cold_group(make_node: Callable[[], Node], *, bytes_max: str) -> tuple[Group, Member]:
    """A group whose log has no more all that its leader has sealed, and that leader."""
    folders: list[Path] = []

    def prepare(member: Member) -> None:
        folders.append(member.node.folder)
        with member.node.config.open("a") as file:
            file.write(f'[cold]\nplace = "{folders[0] / "pieces"}"\nrefresh_s = 1\n')

    group = make_group(make_node, ack="majority-memory", prepare=prepare)
    leader = group.leader()
    with producer(leader) as made:
        for first in range(0, EACH, 20):
            batch = [message_of(number) for number in range(first, first + 20)]
            for queue in range(QUEUES):
                made.send_batch(TOPIC, batch, queue_id=queue).result()
    group.wait_equal()
    seal(leader.node, folders[0] / "pieces", "--self-id", leader.name)
    for member in group.members:
        set_retention(member, keep_for_members="0B", bytes_max=bytes_max)
    for member in group.members:
        wait_deleted(member)
    return group, leader


@pytest.mark.long
def test_another_leader_goes_on_out_of_the_same_pieces(make_node: Callable[[], Node]) -> None:
    group, leader = cold_group(make_node, bytes_max=KEPT)
    seen: list[bytes] = []
    options = ConsumerOptions(messages_max=16, prefetch=1)
    with Consumer(
        group.addresses, topic=TOPIC, queues=[2], start="first", options=options
    ) as consumer:
        while len(seen) < EACH:
            seen += [bytes(message.body)[:6] for message in consumer.poll(PATIENCE_S)]
            if leader in group.up() and len(seen) >= 60:
                leader.kill()
        assert not consumer.resets
    assert seen == [b"%06d" % number for number in range(EACH)]


@pytest.mark.long
def test_pieces_of_another_log_are_refused(make_node: Callable[[], Node]) -> None:
    one, other = make_node(), make_node()
    place = one.folder / "pieces"
    start_client_node(one, file_size=262_144)
    write(one)
    seal(one, place)
    one.end()
    cold = {"place": str(place), "refresh_s": 1}
    start_client_node(other, file_size=262_144, cold=cold, retention=WAITS_FOR_NOTHING)
    write(other)
    delete_oldest(other)
    client = RawConsumer(other.runtime)
    try:
        client.hello()

        def refused() -> bool:
            client.send_pull(TOPIC, 0, 0)
            return "the log is not the one whose pieces are there" in client.refusal().reason

        # What was asked for while the node was starting may wait to be looked at again.
        wait_until(refused, "the pieces to be refused")
    finally:
        client.close()


def test_old_messages_go_with_their_topics_key_and_those_of_other_topics_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, place = tmp_path / "keys", tmp_path / "pieces"
    keys.mkdir(mode=0o700)
    monkeypatch.setenv(KEYS_VARIABLE, str(keys))
    assert main(["piece", "key", TOPIC]) == 0
    with nodes_made(Node) as make:
        node = make()
        cold = {"place": str(place), "wait_ms": WAIT_MS, "refresh_s": 1}
        start_client_node(node, file_size=262_144, cold=cold)
        with Producer(node.address) as made:
            for first in range(0, EACH, 20):
                batch = [message_of(number) for number in range(first, first + 20)]
                for topic in (TOPIC, "other"):
                    made.send_batch(topic, batch, queue_id=0).result(PATIENCE_S)
                    made.send_batch(topic, batch, queue_id=1).result(PATIENCE_S)
        seal(node, place)
        delete_oldest(node)

        def first_of(topic: str) -> bytes:
            with Consumer(node.address, topic=topic, start="first", options=SHORT) as consumer:
                return bytes(consumer.poll(PATIENCE_S)[0].body)

        assert {first_of(topic)[:6] for topic in (TOPIC, "other")} == {b"000000"}
        (path,) = keys.iterdir()
        name = key_name(bytes.fromhex(path.read_text()))
        path.unlink()
        # It was read just now, and stands in memory and in the cache on the disk.
        with pytest.raises(KeyMissingError) as raised:
            first_of(TOPIC)
        assert f"topic='{TOPIC}', key='{name}'" in str(raised.value)
        with (
            ShareConsumer(node.address, group="sharers", topic=TOPIC, timeout_s=3) as sharer,
            pytest.raises(LedgerError, match="locked with a key that is not here"),
        ):
            sharer.poll(2)
        assert first_of("other")[:6] == b"000000"
