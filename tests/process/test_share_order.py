"""Ordered share groups of real nodes: messages of a key one after another, whoever takes them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import pytest

from ledgermq.cli.main import main
from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.blocking.share_consumer import ShareConsumer
from ledgermq.client.groups.share_buffer import ShareOptions
from ledgermq.formats.records.message import decode_message
from ledgermq.verbs.shares import SharedMessage
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import make_group
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "ordered"
GROUP = "g"
LONG_MS = 600_000


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    start_client_node(made)
    return made


@pytest.fixture
def admin(node: Node) -> Iterator[Admin]:
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as made:
        made.create_group(GROUP, consumeMessageOrderly=True)
        yield made


def fill(address: str | list[str], admin: Admin, keys: str, *, queues: int = 1) -> None:
    """A message for each letter, which is its key; of a dot it has none. Its body says where its
    key has it, as ``a0``.
    """
    admin.create_topic(TOPIC, queues=queues)
    counts: dict[str, int] = defaultdict(int)
    with Producer(address) as producer:
        for key in keys:
            message_group = None if key == "." else key
            body = f"{key}{counts[key]}".encode()
            producer.send(TOPIC, body, message_group=message_group).result()
            counts[key] += 1
    wait_until(lambda: admin.topic(TOPIC).messages == len(keys), "all are in their queues")


def bodies(messages: Sequence[SharedMessage]) -> list[str]:
    return [bytes(decode_message(one.record).body).decode() for one in messages]


def taken(admin: Admin, wait_ms: int = 0, invisible_ms: int = LONG_MS) -> dict[str, SharedMessage]:
    found = admin.receive_shared(GROUP, TOPIC, 64, invisible_ms=invisible_ms, wait_ms=wait_ms)
    return dict(zip(bodies(found), found, strict=True))


def settle(admin: Admin, action: str, *messages: SharedMessage, delay_ms: int = 0) -> None:
    rows = admin.settle_shared(GROUP, action, [one.handle for one in messages], delay_ms)  # type: ignore[arg-type]
    assert {row.outcome for row in rows} == {"done"}


def test_the_next_of_a_key_comes_when_the_one_before_it_is_settled(
    node: Node, admin: Admin
) -> None:
    fill(f"ipc://{node.runtime}", admin, "aab.a.b")
    first = taken(admin)
    state = admin.shared_group(GROUP)
    (queue,) = state.queues

    assert list(first) == ["a0", "b0", ".0", ".1"]
    assert state.ordered
    assert (queue.in_flight, queue.behind, queue.returned, queue.low) == (4, 3, 0, 0)
    assert taken(admin) == {}
    settle(admin, "accept", first["b0"])
    second = taken(admin)
    assert list(second) == ["b1"]
    settle(admin, "accept", first["a0"], *second.values())
    third = taken(admin)
    assert list(third) == ["a1"]
    settle(admin, "accept", *third.values())
    assert list(taken(admin)) == ["a2"]
    assert admin.lag(GROUP)[0].offset == 3


def test_what_comes_again_comes_before_what_is_behind_it(node: Node, admin: Admin) -> None:
    fill(f"ipc://{node.runtime}", admin, "aaab")
    first = taken(admin)
    settle(admin, "release", first["a0"], delay_ms=700)
    assert taken(admin) == {}
    again = taken(admin, wait_ms=30_000, invisible_ms=300)
    assert {body: one.delivery for body, one in again.items()} == {"a0": 2}
    # Not settled in time: once more, and still nothing behind it.
    late = taken(admin, wait_ms=30_000)
    assert {body: one.delivery for body, one in late.items()} == {"a0": 3}
    settle(admin, "return", late["a0"])
    given_back = taken(admin)
    assert {body: one.delivery for body, one in given_back.items()} == {"a0": 3}
    settle(admin, "accept", given_back["a0"])
    assert list(taken(admin)) == ["a1"]


def test_behind_a_dead_letter_its_key_goes_on(node: Node, admin: Admin) -> None:
    fill(f"ipc://{node.runtime}", admin, "aaa")
    admin.alter_group(GROUP, retryMaxTimes=1)
    settle(admin, "reject", taken(admin)["a0"])
    for delivery in (1, 2):
        second = taken(admin, wait_ms=30_000)
        assert {body: one.delivery for body, one in second.items()} == {"a1": delivery}
        settle(admin, "release", second["a1"])
    assert list(taken(admin, wait_ms=30_000)) == ["a2"]
    wait_until(lambda: admin.topic(f"%DLQ%{GROUP}").messages == 2, "both dead letters")


def test_a_key_that_hangs_holds_up_no_other(node: Node, admin: Admin) -> None:
    """More of it than is looked at in one go stands before the others'."""
    fill(f"ipc://{node.runtime}", admin, "a" * 1_500 + "bcbc")
    hung = taken(admin, invisible_ms=5_000)
    assert list(hung) == ["a0"]
    rest: list[str] = []
    for _ in range(2):
        some = taken(admin, wait_ms=30_000)
        settle(admin, "accept", *some.values())
        rest += some

    assert rest == ["b0", "c0", "b1", "c1"]
    (queue,) = admin.shared_group(GROUP).queues
    assert (queue.behind, queue.next, queue.low) == (1_499, 1_504, 0)
    again = taken(admin, wait_ms=30_000)
    assert {body: one.delivery for body, one in again.items()} == {"a0": 2}


def test_who_finds_nothing_but_what_may_not_be_passed_over_is_told_so(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start_client_node(node, limits={"share_unsettled_per_group": 6})
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        admin.create_group(GROUP, consumeMessageOrderly=True)
        fill(f"ipc://{node.runtime}", admin, "aaaaab")
        first = taken(admin)
        began = time.monotonic()
        assert list(first) == ["a0"]
        assert taken(admin) == taken(admin, wait_ms=300) == {}
        assert time.monotonic() - began < PATIENCE_S / 2
        # Half of what the group may have may wait.
        (queue,) = admin.shared_group(GROUP).queues
        assert (queue.in_flight, queue.behind, queue.next) == (1, 3, 4)
        settle(admin, "accept", first["a0"])
        for body in ("a1", "a2", "a3"):
            some = taken(admin, wait_ms=30_000)
            assert body in some
            settle(admin, "accept", *some.values())


def test_the_order_of_a_group_may_be_asked_for_and_given_up(node: Node, admin: Admin) -> None:
    fill(f"ipc://{node.runtime}", admin, "aaaabb")
    first = taken(admin)
    assert list(first) == ["a0", "b0"]
    admin.alter_group(GROUP, consumeMessageOrderly=False)
    rest = taken(admin, wait_ms=10_000)
    assert list(rest) == ["a1", "a2", "a3", "b1"]
    admin.alter_group(GROUP, consumeMessageOrderly=True)
    settle(admin, "release", first["a0"], rest["a2"], rest["a3"])
    settle(admin, "accept", rest["a1"])

    again = taken(admin)
    assert list(again) == ["a0"]
    settle(admin, "accept", again["a0"])
    assert list(taken(admin, wait_ms=10_000)) == ["a2"]
    assert admin.shared_group(GROUP).queues[0].behind == 1


def test_a_broker_that_was_killed_goes_on_in_order(node: Node, admin: Admin) -> None:
    fill(f"ipc://{node.runtime}", admin, "aabba")
    first = taken(admin)
    os.kill(node.pid("broker"), signal.SIGKILL)

    assert taken(admin) == {}
    settle(admin, "accept", first["a0"])
    assert list(taken(admin, wait_ms=10_000)) == ["a1"]
    settle(admin, "release", first["b0"])
    again = taken(admin, wait_ms=10_000)
    assert {body: one.delivery for body, one in again.items()} == {"b0": 2}


def test_consumers_get_each_key_in_its_order_and_never_two_at_a_time(
    node: Node, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them gives back what it is given for the first time, another one stands still with
    what it has, until that is handed out again.
    """
    address = f"ipc://{node.runtime}"
    keys = "abcdefgh" * 30
    fill(address, admin, keys, queues=3)
    lock, held = threading.Lock(), set[str]()
    done: dict[str, list[str]] = {key: [] for key in keys}
    faults: list[str] = []

    def consume(number: int) -> None:
        options = ShareOptions(max_in_flight=6, invisible_ms=2_000)
        with ShareConsumer(
            address, group=GROUP, topic=TOPIC, options=options, timeout_s=PATIENCE_S
        ) as consumer:
            while sum(map(len, done.values())) < len(keys):
                for message in consumer.poll(0.2):
                    body = message.body.decode()
                    if number == 0 and message.delivery == 1 and int(body[1:]) % 7 == 3:
                        consumer.release(message, delay_ms=20)
                        continue
                    if number == 1 and message.delivery == 1 and body in ("a5", "b5"):
                        # It is forgotten: nobody settles it before its time is over.
                        continue
                    with lock:
                        if body[0] in held or (done[body[0]] and done[body[0]][-1] == body):
                            faults.append(body)
                        held.add(body[0])
                    time.sleep(0.001)
                    with lock:
                        held.discard(body[0])
                        done[body[0]].append(body)
                    consumer.accept(message)

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert faults == []
    assert dict(done) == {key: [f"{key}{number}" for number in range(30)] for key in "abcdefgh"}
    wait_until(lambda: admin.shared_group(GROUP).unsettled == 0, "all are settled")
    capsys.readouterr()
    assert main(["share", "show", GROUP, "--address", address]) == 0
    assert "ordered by key" in capsys.readouterr().out


def test_a_leader_that_is_killed_takes_no_order_along(make_node: Callable[[], Node]) -> None:
    group = make_group(make_node, ack="majority-fsync")
    keys = [f"k{number}" for number in range(40)]
    with (
        Admin(group.addresses, timeout_s=PATIENCE_S) as admin,
        Producer(group.addresses) as producer,
    ):
        admin.create_topic(TOPIC, queues=2)
        admin.create_group(GROUP, consumeMessageOrderly=True)
        for turn in range(4):
            for number, key in enumerate(keys):
                producer.send(
                    TOPIC, f"{key} {turn}".encode(), queue_id=number % 2,
                    message_group=key,
                ).result()  # fmt: skip
        first: dict[str, SharedMessage] = {}
        until = time.monotonic() + PATIENCE_S
        while len(first) < 40 and time.monotonic() < until:
            first |= taken(admin, wait_ms=2_000)
        assert sorted(first) == sorted(f"{key} 0" for key in keys)
        handles = list(first.values())
        settle(admin, "accept", *handles[:10])
        leader = group.leader()
        leader.kill()

        # Ten keys go on, ten are given back, and the rest are with who took them.
        settle(admin, "release", *handles[10:20])
        second: dict[str, SharedMessage] = {}
        while len(second) < 20 and time.monotonic() < until:
            second |= taken(admin, wait_ms=2_000)
        assert taken(admin) == {}
        wanted = [body.replace(" 0", " 1") for body in list(first)[:10]] + list(first)[10:20]
        assert sorted(second) == sorted(wanted)
        settle(admin, "accept", *second.values(), *handles[20:])
        order: dict[str, list[str]] = defaultdict(list)
        left = 160 - 10 - 20 - 20
        while left and time.monotonic() < until:
            some = taken(admin, wait_ms=2_000)
            assert len({body.split()[0] for body in some}) == len(some)
            for body in some:
                order[body.split()[0]].append(body)
            if some:
                settle(admin, "accept", *some.values())
            left -= len(some)
        assert all(of == sorted(of) for of in order.values())
        assert left == 0
        leader.start()
        group.wait_equal()
        wait_until(lambda: admin.shared_group(GROUP).unsettled == 0, "all are settled")
    group.stop()
