"""Share groups of real nodes: many consumers on one queue, whoever leads."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from ledgermq.cli.main import main
from ledgermq.client.admin.admin import Admin
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.aio.share_consumer import AsyncShareConsumer
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.blocking.share_consumer import ShareConsumer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.groups import share_buffer
from ledgermq.client.groups.group_member import GroupOptions
from ledgermq.client.groups.share_buffer import ShareOptions, TakenMessage
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    GroupActiveError,
    GroupUnknownError,
    LedgerError,
    MessageIllegalError,
    ProtocolError,
    QuotaError,
    TimedOutError,
    TopicUnknownError,
)
from ledgermq.verbs.shares import SharedMessage
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port, make_group
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "shared"


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    start_client_node(made)
    return made


def admin_of(node: Node) -> Admin:
    return Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S)


def fill(node: Node, count: int, *, queues: int = 1) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as producer:
        admin.create_topic(TOPIC, queues=queues)
        for number, body in enumerate(bodies):
            producer.send(TOPIC, body, queue_id=number % queues).result()
        wait_until(lambda: admin.topic(TOPIC).messages == count, "all are in their queues")
    return bodies


def bodies_of(messages: list[SharedMessage]) -> list[bytes]:
    return [bytes(decode_message(one.record).body) for one in messages]


def handles_of(messages: list[SharedMessage]) -> list[str]:
    return [one.handle for one in messages]


def outcomes(admin: Admin, action: str, handles: list[str], delay_ms: int = 0) -> list[str]:
    rows = admin.settle_shared("g", action, handles, delay_ms)  # type: ignore[arg-type]
    assert [row.handle for row in rows] == handles
    return [row.outcome for row in rows]


def test_two_consumers_share_the_messages_of_one_queue(node: Node) -> None:
    sent = fill(node, 40)
    with admin_of(node) as one, admin_of(node) as other:
        first = one.receive_shared("g", TOPIC, 25)
        second = other.receive_shared("g", TOPIC, 25)

        assert bodies_of(first) + bodies_of(second) == sent
        assert {message.delivery for message in first + second} == {1}
        assert one.receive_shared("g", TOPIC, 25) == []
        assert outcomes(one, "accept", handles_of(second)) == ["done"] * 15
        state = one.shared_group("g")
        (queue,) = state.queues
        assert (state.unsettled, queue.low, queue.next, queue.end) == (25, 0, 40, 40)
        assert (queue.in_flight, queue.late, queue.returned, queue.again) == (25, 0, 0, 0)
        assert outcomes(other, "accept", handles_of(first[:10])) == ["done"] * 10
        (lag,) = one.lag("g")
        assert (lag.offset, lag.lag) == (10, 30)
        assert outcomes(other, "accept", handles_of(first)) == ["settled"] * 10 + ["done"] * 15
        (lag,) = one.lag("g")
        assert (lag.offset, lag.lag) == (40, 0)


def test_a_message_that_is_not_settled_in_time_is_handed_out_again(node: Node) -> None:
    fill(node, 3)
    with admin_of(node) as admin:
        first = admin.receive_shared("g", TOPIC, invisible_ms=300)
        again = admin.receive_shared("g", TOPIC, wait_ms=10_000)

        assert bodies_of(again) == bodies_of(first)
        assert {message.delivery for message in again} == {2}
        assert again[0].until - first[0].until >= 30_000
        assert outcomes(admin, "accept", handles_of(first)) == ["over"] * 3
        assert outcomes(admin, "accept", handles_of(again)) == ["done"] * 3
        assert outcomes(admin, "accept", handles_of(first)) == ["settled"] * 3


def test_a_message_that_is_late_may_be_settled_as_long_as_nobody_else_has_it(node: Node) -> None:
    fill(node, 1)
    with admin_of(node) as admin:
        (late,) = admin.receive_shared("g", TOPIC, invisible_ms=100)
        wait_until(lambda: admin.shared_group("g").queues[0].late == 1, "its time to be over")

        assert outcomes(admin, "accept", [late.handle]) == ["done"]


def test_messages_are_given_back_kept_and_put_aside(node: Node) -> None:
    fill(node, 5)
    with admin_of(node) as admin:
        taken = handles_of(admin.receive_shared("g", TOPIC, invisible_ms=60_000))
        assert outcomes(admin, "release", taken[:1]) == ["done"]
        assert outcomes(admin, "return", taken[1:2]) == ["done"]
        assert outcomes(admin, "release", taken[2:3], 60_000) == ["done"]
        assert outcomes(admin, "extend", taken[3:4], 600_000) == ["done"]
        assert outcomes(admin, "reject", taken[4:]) == ["done"]
        again = admin.receive_shared("g", TOPIC)
        (queue,) = admin.shared_group("g").queues
        wait_until(lambda: admin.topic("%DLQ%g").messages == 1, "the dead letter")

        assert sorted((one.offset, one.delivery) for one in again) == [(0, 2), (1, 1)]
        assert (queue.in_flight, queue.returned, queue.again) == (3, 1, 1)
        assert outcomes(admin, "accept", taken[:3]) == ["over"] * 3
        assert outcomes(admin, "accept", taken[3:]) == ["done", "settled"]
    with Consumer(f"ipc://{node.runtime}", topic="%DLQ%g", start="first") as dead:
        (letter,) = dead.poll(PATIENCE_S)
        assert (letter.body, letter.reconsume_times) == (b"4", 1)
        assert letter.properties["RETRY_TOPIC"] == TOPIC


def test_what_was_handed_out_too_often_becomes_a_dead_letter(node: Node) -> None:
    fill(node, 2)
    with admin_of(node) as admin:
        admin.create_group("g", retryMaxTimes=1)
        for delivery in (1, 2):
            taken = admin.receive_shared("g", TOPIC, wait_ms=1_000)
            assert {one.delivery for one in taken} == {delivery}
            outcomes(admin, "release", handles_of(taken))
        assert admin.receive_shared("g", TOPIC, wait_ms=200) == []
        wait_until(lambda: admin.topic("%DLQ%g").messages == 2, "both dead letters")
        state = admin.shared_group("g")
        assert (state.deliveries_max, state.unsettled, state.queues[0].low) == (2, 0, 2)


def test_who_waits_is_given_what_comes(node: Node) -> None:
    fill(node, 0, queues=4)
    with admin_of(node) as admin, admin_of(node) as waiting:
        found: list[SharedMessage] = []
        thread = threading.Thread(
            target=lambda: found.extend(waiting.receive_shared("g", TOPIC, wait_ms=30_000))
        )
        thread.start()
        assert admin.receive_shared("g", TOPIC, wait_ms=50) == []
        with Producer(f"ipc://{node.runtime}") as producer:
            producer.send(TOPIC, b"late", queue_id=2).result()
        thread.join()

        assert bodies_of(found) == [b"late"]


def test_a_receive_accepts_what_was_taken_before_and_waits_then(node: Node) -> None:
    sent = fill(node, 40)
    with admin_of(node) as admin, admin_of(node) as other:
        first = admin.receive_shared("g", TOPIC, 20)
        many = f"{first[0].handle}*10"
        rest = handles_of(first[10:])
        second = admin.receive_shared("g", TOPIC, 10, accept=[many, *rest[:9], "no handle"])
        assert bodies_of(second) == sent[20:30]
        assert second.late == ("no handle",)
        (queue,) = admin.shared_group("g").queues
        assert (queue.low, queue.in_flight) == (19, 11)
        again = admin.receive_shared("g", TOPIC, 10, accept=[many])
        assert (again.late, bodies_of(again)) == ((), sent[30:])
        others = handles_of(other.receive_shared("h", TOPIC, 5))
        place, _, mark = rest[9].rpartition(":")
        forged = f"{place}:{int(mark, 16) ^ 1 or 2:x}"
        forgeries = [*others, forged, f"{rest[9]}*1025"]
        none = admin.receive_shared("g", TOPIC, 1, accept=forgeries, wait_ms=100)
        assert (list(none), none.late) == ([], tuple(forgeries))
        assert other.shared_group("h").unsettled == 5
        # What is accepted is in the log although there is nothing to be given for a while.
        waiting = threading.Thread(
            target=lambda: admin.receive_shared("g", TOPIC, accept=rest, wait_ms=20_000)
        )
        waiting.start()
        wait_until(lambda: other.shared_group("g").queues[0].low == 20, "it is accepted")
        assert waiting.is_alive()
        with Producer(f"ipc://{node.runtime}") as producer:
            producer.send(TOPIC, b"last").result()
        waiting.join()


def test_a_consumer_that_goes_on_accepts_by_the_same_question(node: Node) -> None:
    sent = fill(node, 200, queues=2)
    found: list[bytes] = []
    with consumer_of(node, max_in_flight=20) as consumer, admin_of(node) as admin:
        for message in consumer:
            found.append(message.body)
            consumer.accept(message)
            if len(found) == len(sent):
                break
        before = node.status()["counters"]["broker"]["calls"]
        with Producer(f"ipc://{node.runtime}") as producer:
            for body in sent[:40]:
                producer.send(TOPIC, body).result()
        wait_until(lambda: admin.topic(TOPIC).messages == 240, "all are in their queues")
        asked, calls = 0, node.status()["counters"]["broker"]["calls"]
        while len(found) < 240:
            messages = consumer.poll(PATIENCE_S)
            found += [message.body for message in messages]
            consumer.accept(*messages)
            asked += 1
        told = node.status()["counters"]["broker"]["calls"] - calls

        assert sorted(found) == sorted(sent + sent[:40])
        assert before <= calls and told <= asked
        consumer.flush()
        assert admin.shared_group("g").unsettled == 0


def test_a_filter_settles_what_it_leaves_out(node: Node) -> None:
    fill(node, 0)
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as producer:
        for number in range(30):
            tag = "ab"[number % 2]
            producer.send(TOPIC, b"%d" % number, tag=tag, properties={"n": str(number)}).result()
        wait_until(lambda: admin.topic(TOPIC).messages == 30, "all are in their queues")
        by_tag = admin.receive_shared("g", TOPIC, filter="a || c", wait_ms=1_000)
        by_sql = admin.receive_shared("h", TOPIC, filter="SQL92 n >= 28", wait_ms=1_000)

        assert bodies_of(by_tag) == [b"%d" % number for number in range(0, 30, 2)]
        assert bodies_of(by_sql) == [b"28", b"29"]
        assert admin.shared_group("h").queues[0].low == 28


def test_a_handle_that_nobody_was_given_settles_nothing(node: Node) -> None:
    fill(node, 2)
    with admin_of(node) as admin:
        (one, two) = handles_of(admin.receive_shared("g", TOPIC))
        head, _, mark = one.rpartition(":")
        forged = f"{head}:{int(mark, 16) ^ 1 or 2:x}"
        others = two.replace(":g:", ":other:")
        unknown = two.replace(f":{TOPIC}:0:", f":{TOPIC}:7:")
        wrong = [forged, others, "nothing", unknown]

        assert outcomes(admin, "accept", wrong) == ["over", "other_group", "unreadable", "over"]
        with pytest.raises((ProtocolError, MessageIllegalError)):
            outcomes(admin, "accept", ["x" * 600])
        assert admin.shared_group("g").unsettled == 2


def test_a_reset_ends_what_was_handed_out(node: Node) -> None:
    sent = fill(node, 6)
    with admin_of(node) as admin:
        taken = admin.receive_shared("g", TOPIC, 4)
        assert outcomes(admin, "accept", handles_of(taken[:2])) == ["done"] * 2
        admin.reset_offsets("g", TOPIC, "number", 1)

        assert outcomes(admin, "accept", handles_of(taken[2:])) == ["over"] * 2
        again = admin.receive_shared("g", TOPIC)
        assert bodies_of(again) == sent[1:]
        assert {one.delivery for one in again} == {1}
        # As RocketMQ's tools do it.
        with connect_broker(f"ipc://{node.runtime}", name="tool", timeout_s=PATIENCE_S) as broker:
            broker.call("group_commit", group="g", topic=TOPIC, offsets={"0": 5}, reset=True)
        assert bodies_of(admin.receive_shared("g", TOPIC)) == sent[5:]


def test_a_group_goes_from_queue_by_queue_to_sharing_and_back(node: Node) -> None:
    sent = fill(node, 10)
    address = f"ipc://{node.runtime}"
    with admin_of(node) as admin:
        options = GroupOptions(start="first")
        with GroupConsumer(address, group="g", group_options=options) as consumer:
            consumer.subscribe(TOPIC)
            assert consumer.poll(PATIENCE_S)
            consumer.commit()
            with pytest.raises(GroupActiveError):
                admin.receive_shared("g", TOPIC)
        admin.reset_offsets("g", TOPIC, "number", 4)
        taken = admin.receive_shared("g", TOPIC)
        assert bodies_of(taken) == sent[4:]
        with pytest.raises(GroupActiveError):
            admin.end_shared("g")
        outcomes(admin, "accept", handles_of(taken[:3]))
        with Consumer(address, topic=TOPIC, group="g") as consumer:
            consumer.poll(1)
            with pytest.raises(GroupActiveError):
                consumer.commit({0: 9})
        admin.end_shared("g", force=True)
        with pytest.raises(GroupUnknownError):
            admin.shared_group("g")
        assert outcomes(admin, "accept", handles_of(taken)) == ["over"] * 6
        assert admin.lag("g")[0].offset == 7
        with GroupConsumer(address, group="g") as consumer:
            consumer.subscribe(TOPIC)
            assert consumer.poll(PATIENCE_S)[0].queue_offset == 7


def test_what_is_wrong_is_refused_by_name(node: Node) -> None:
    fill(node, 1)
    with admin_of(node) as admin:
        with pytest.raises(TopicUnknownError):
            admin.receive_shared("g", "nothing")
        with pytest.raises(TopicUnknownError):
            admin.receive_shared("g", TOPIC, queue=3)
        with pytest.raises(GroupUnknownError):
            admin.shared_group("nobody")
        with pytest.raises(MessageIllegalError):
            admin.receive_shared("g", TOPIC, 257)


def test_all_is_known_again_after_a_kill_of_the_broker(node: Node) -> None:
    sent = fill(node, 20)
    with admin_of(node) as admin:
        taken = admin.receive_shared("g", TOPIC, 12)
        assert outcomes(admin, "accept", handles_of(taken[4:8])) == ["done"] * 4
        os.kill(node.pid("broker"), signal.SIGKILL)

        assert bodies_of(admin.receive_shared("g", TOPIC)) == sent[12:]
        assert outcomes(admin, "accept", handles_of(taken)) == [
            *["done"] * 4, *["settled"] * 4, *["done"] * 4
        ]  # fmt: skip


def consumer_of(node: Node, **options: int) -> ShareConsumer:
    return ShareConsumer(
        f"ipc://{node.runtime}",
        group="g",
        topic=TOPIC,
        options=ShareOptions(**options),
        timeout_s=PATIENCE_S,
    )


def test_consumers_iterate_over_messages_that_each_gets_once(node: Node) -> None:
    sent = fill(node, 120, queues=2)
    seen: list[bytes] = []
    consumers = [consumer_of(node, max_in_flight=16) for _ in range(3)]

    def consume(consumer: ShareConsumer) -> None:
        while len(seen) < len(sent):
            for message in consumer.poll(0.2):
                seen.append(message.body)
                consumer.accept(message)
        consumer.close()

    threads = [threading.Thread(target=consume, args=(one,)) for one in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(seen) == sorted(sent)
    with admin_of(node) as admin:
        assert admin.shared_group("g").unsettled == 0
        assert sum(row.lag for row in admin.lag("g")) == 0


def test_a_consumer_settles_keeps_and_gives_back(node: Node) -> None:
    fill(node, 12)
    with consumer_of(node, max_in_flight=10) as consumer, admin_of(node) as admin:
        taken: list[TakenMessage] = []
        for message in consumer:
            taken.append(message)
            if len(taken) == 5:
                break
        consumer.accept(*taken[:2])
        consumer.reject(taken[2])
        consumer.release(taken[3], delay_ms=60_000)
        assert consumer.extend(taken[4], invisible_ms=600_000)
        assert consumer.in_flight == 6
        with pytest.raises(ConfigError):
            consumer.accept(taken[0])
        assert consumer.flush() == []
        assert admin.shared_group("g").unsettled == 7
        consumer.close()

        # Five that nobody was given, and the one that was: two more were never taken.
        again = {one.offset: one.delivery for one in admin.receive_shared("g", TOPIC)}
        assert again == {4: 2, **dict.fromkeys(range(5, 12), 1)}


def test_tasks_of_one_consumer_settle_what_it_iterates_over(node: Node) -> None:
    sent = fill(node, 20)

    async def consume() -> list[bytes]:
        seen: list[bytes] = []
        options = ShareOptions(max_in_flight=4)
        async with (
            AsyncShareConsumer(
                f"ipc://{node.runtime}",
                group="g",
                topic=TOPIC,
                options=options,
                timeout_s=PATIENCE_S,
            ) as consumer,
            asyncio.TaskGroup() as tasks,
        ):

            async def handle(message: TakenMessage) -> None:
                await asyncio.sleep(0)
                assert await consumer.extend(message)
                consumer.accept(message)

            async for message in consumer:
                assert consumer.in_flight <= 4
                seen.append(message.body)
                tasks.create_task(handle(message))
                if len(seen) == len(sent):
                    break
        return seen

    assert asyncio.run(consume()) == sent
    with admin_of(node) as admin:
        assert admin.shared_group("g").unsettled == 0


def test_tasks_that_flush_at_the_same_time_do_each_other_no_harm(node: Node) -> None:
    fill(node, 60)

    async def consume() -> list[int]:
        async with AsyncShareConsumer(
            f"ipc://{node.runtime}", group="g", topic=TOPIC, timeout_s=PATIENCE_S
        ) as consumer:
            taken = await consumer.poll(PATIENCE_S)
            unsettled: list[int] = []

            async def handle(messages: list[TakenMessage]) -> None:
                consumer.accept(*messages[:3])
                consumer.release(*messages[3:], delay_ms=600_000)
                assert await consumer.flush() == []
                unsettled.append(len(messages))

            async with asyncio.TaskGroup() as tasks:
                for first in range(0, len(taken), 6):
                    tasks.create_task(handle(taken[first : first + 6]))
            return unsettled

    assert asyncio.run(consume()) == [6] * 10
    with admin_of(node) as admin:
        state = admin.shared_group("g")
        assert (state.unsettled, state.queues[0].returned) == (30, 30)


def test_what_an_iteration_does_not_come_to_in_time_is_others_uncounted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = fill(node, 6)
    with consumer_of(node) as consumer, admin_of(node) as admin:
        messages = iter(consumer)
        first = next(messages)
        others = [next(messages) for _ in range(2)]
        assert admin.receive_shared("g", TOPIC) == []
        # The work at these takes longer than half of the time of those behind them.
        later = time.monotonic() + consumer.options.invisible_ms / 2_000
        monkeypatch.setattr(share_buffer, "monotonic", lambda: later)
        found = [next(messages) for _ in range(3)]

        assert [one.body for one in (first, *others, *found)] == sent
        assert [one.delivery for one in found] == [1, 1, 1]
        assert {one.handle.rpartition(":")[2] for one in found}.isdisjoint(
            {first.handle.rpartition(":")[2]}
        )
        consumer.accept(first, *others, *found)
        assert consumer.flush() == []
        assert admin.shared_group("g").unsettled == 0


def test_an_iteration_that_settles_nothing_says_so(node: Node) -> None:
    fill(node, 5)
    with consumer_of(node, max_in_flight=3) as consumer, pytest.raises(ConfigError) as refused:
        for _ in consumer:
            pass
    assert refused.value.details["option"] == "max_in_flight"


def test_no_more_is_handed_out_than_the_settings_say(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node, limits={"share_unsettled_per_group": 5})
    fill(node, 12)
    with Admin(f"ipc://{node.runtime}", timeout_s=3) as admin:
        taken = admin.receive_shared("g", TOPIC)
        with pytest.raises((BusyError, TimedOutError)) as refused:
            admin.receive_shared("g", TOPIC)
        outcomes(admin, "accept", handles_of(taken[:2]))

        assert len(taken) == 5
        assert "limits.share_unsettled_per_group" in str(refused.value)
        assert len(admin.receive_shared("g", TOPIC)) == 2


def test_strangers_leave_room_for_others_however_many_groups_they_take(
    make_node: Callable[[], Node],
) -> None:
    node, port = make_node(), free_port()
    limits = {"share_unsettled_per_group": 30, "share_unsettled_max": 80}
    start_client_node(node, limits=limits, listen={"consume": f"tcp://127.0.0.1:{port}"})
    fill(node, 100)
    taken, refused = 0, ""
    with Admin(f"tcp://127.0.0.1:{port}", timeout_s=1) as stranger, admin_of(node) as admin:
        for number in range(4):
            try:
                while given := stranger.receive_shared(f"hoard-{number}", TOPIC, 7):
                    taken += len(given)
            except (BusyError, TimedOutError) as error:
                refused = str(error)
        assert taken == 80 // 4
        assert "of one user or host" in refused and "limits.share_unsettled_max" in refused
        # Whoever leads next knows from the log who has taken it.
        os.kill(node.pid("broker"), signal.SIGKILL)
        wait_until(lambda: bool(admin.shared_group("hoard-0").unsettled), "the broker is back")
        for number in range(2):
            with suppress(LedgerError):
                taken += len(stranger.receive_shared(f"later-{number}", TOPIC, 7))
        assert taken == 80 // 4
        assert len(admin.receive_shared("honest", TOPIC, 10)) == 10


def test_what_is_handed_out_counts_for_the_quota_of_its_topic(node: Node) -> None:
    fill(node, 8)
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_quota(f"topic:{TOPIC}", consume_bytes=1)
    with Admin(f"ipc://{node.runtime}", timeout_s=2) as admin:
        # The first one overdraws what is saved up; nothing comes before that is paid back.
        assert len(admin.receive_shared("g", TOPIC, 4)) == 4
        with pytest.raises((QuotaError, TimedOutError), match=f"topic:{TOPIC}"):
            admin.receive_shared("g", TOPIC, 4)


KILLED = """
import sys
from ledgermq.client import ShareConsumer, ShareOptions
consumer = ShareConsumer(
    sys.argv[1], group="g", topic="shared", options=ShareOptions(invisible_ms=int(sys.argv[2]))
)
messages = consumer.poll(60)
consumer.accept(*messages[:2])
consumer.flush()
print(len(messages), flush=True)
consumer.poll(600)
"""


def test_what_a_killed_consumer_had_comes_again(node: Node) -> None:
    """At once or later it waits for more: what comes for it then is given to others."""
    sent = fill(node, 6)
    words = [sys.executable, "-c", KILLED, f"ipc://{node.runtime}", "1500"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"6\n"
        killed.kill()
    with consumer_of(node) as consumer:
        found: dict[bytes, int] = {}
        until = time.monotonic() + PATIENCE_S
        while len(found) < 4 and time.monotonic() < until:
            messages = consumer.poll(1)
            found |= {message.body: message.delivery for message in messages}
            consumer.accept(*messages)

        assert found == dict.fromkeys(sent[2:], 2)


def test_a_leader_that_is_killed_takes_no_handle_and_no_acknowledgement_along(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    sent = {b"%d" % number for number in range(1_050)}
    with (
        Admin(group.addresses, timeout_s=PATIENCE_S) as admin,
        Producer(group.addresses) as producer,
    ):
        admin.create_topic(TOPIC, queues=2)
        results = [producer.send(TOPIC, body, queue_id=len(body) % 2) for body in sorted(sent)]
        for result in results:
            result.result(PATIENCE_S)
        taken: list[SharedMessage] = []
        while len(taken) < 1_000:
            asked = min(1_000 - len(taken), 256)
            taken += admin.receive_shared("g", TOPIC, asked, invisible_ms=600_000, wait_ms=5_000)
        accepted = handles_of(taken[:100])
        assert outcomes(admin, "accept", accepted) == ["done"] * 100
        leader = group.leader()
        leader.kill()

        # All that was handed out before is accepted, once, by whoever leads now.
        assert outcomes(admin, "accept", handles_of(taken[100:900])) == ["done"] * 800
        assert outcomes(admin, "accept", accepted) == ["settled"] * 100
        assert outcomes(admin, "release", handles_of(taken[900:])) == ["done"] * 100
        rest: list[SharedMessage] = []
        until = time.monotonic() + PATIENCE_S
        while len(rest) < 150 and time.monotonic() < until:
            rest += admin.receive_shared("g", TOPIC, invisible_ms=600_000, wait_ms=5_000)
        assert admin.receive_shared("g", TOPIC) == []
        settled = set(bodies_of(taken[:900]))
        assert sorted(bodies_of(rest)) == sorted(sent - settled)
        leader.start()
        group.wait_equal()
        assert outcomes(admin, "accept", handles_of(rest)) == ["done"] * 150
        tables = "share-groups.json"
        wait_until(
            lambda: len({shares_of(member.node, tables) for member in group.members}) == 1,
            "all members to have the same table",
            timeout_s=PATIENCE_S,
        )
    group.stop()


def test_members_that_accept_as_they_receive_lose_nothing_with_a_leader(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    sent = {b"%d" % number for number in range(900)}
    seen: Counter[bytes] = Counter()
    confirmed: set[bytes] = set()
    twice: list[bytes] = []
    lock, is_half_done = threading.Lock(), threading.Event()

    def consume() -> None:
        options = ShareOptions(max_in_flight=32, invisible_ms=4_000)
        with ShareConsumer(
            group.addresses, group="g", topic=TOPIC, options=options, timeout_s=PATIENCE_S
        ) as member:
            told: list[bytes] = []
            while not sent <= confirmed:
                before = set(confirmed)
                messages = member.poll(0.3)
                with lock:
                    confirmed.update(told)
                    told = [message.body for message in messages]
                    twice.extend(before.intersection(told))
                    seen.update(told)
                member.accept(*messages)
                if len(confirmed) > 300:
                    is_half_done.set()

    with Admin(group.addresses, timeout_s=PATIENCE_S) as admin:
        admin.create_topic(TOPIC, queues=3)
        with Producer(group.addresses) as producer:
            for result in [producer.send(TOPIC, body) for body in sent]:
                result.result(PATIENCE_S)
        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert is_half_done.wait(PATIENCE_S)
        group.leader().kill()
        for thread in threads:
            thread.join(PATIENCE_S)

        assert (set(seen), twice) == (sent, [])
        assert admin.shared_group("g").unsettled == 0
    group.stop()


def shares_of(node: Node, name: str) -> str:
    path = node.root / "ledgermq" / name
    return str(json.loads(path.read_text())["shares"]) if path.exists() else ""


def test_messages_are_shared_by_hand(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    fill(node, 3)

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main([*words, "--address", f"ipc://{node.runtime}", "--timeout", "60"])
        return status, capsys.readouterr().out

    status, text = run(
        "share", "receive", "g", TOPIC, "--max-messages", "2", "--invisible", "60000", "--wait", "9"
    )
    messages = [json.loads(line) for line in text.splitlines()]
    handles = [message["handle"] for message in messages]
    assert (status, [message["body"] for message in messages]) == (0, ["0", "1"])
    assert run("share", "settle", "g", "accept", handles[0])[0] == 0
    assert run("share", "settle", "g", "release", handles[1], "--delay", "60000")[0] == 0
    assert run("share", "settle", "g", "accept", handles[1])[0] == 1
    status, text = run("share", "show", "g", "--json")
    told = json.loads(text)
    assert (told["unsettled"], told["queues"][0]["low"]) == (1, 1)
    assert "returned" in run("share", "show", "g")[1]
    status, text = run("share", "receive", "g", TOPIC, "--json")
    assert [message["body"] for message in json.loads(text)["messages"]] == ["2"]
    assert run("share", "end", "g", "--force", "--yes")[0] == 0
