"""Share groups, POP among them, over messages that pieces alone have: each is handed out, none is
passed over, whoever dies or is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ledgermq.client import Admin
from ledgermq.client.blocking.share_consumer import ShareConsumer
from ledgermq.client.groups.share_buffer import ShareOptions
from ledgermq.model.errors import TimedOutError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_pops import ack, pop_fields, popped
from tests.process.remoting_steps import beat
from tests.process.test_cold_reads import (
    EACH,
    QUEUES,
    TAGS,
    Cold,
    cold_group,
    delete_oldest,
    seal,
    write,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]

ALL = {(queue, number) for queue in range(QUEUES) for number in range(EACH)}
OPTIONS = ShareOptions(max_in_flight=256, invisible_ms=60_000)


@pytest.fixture(scope="module")
def cold() -> Iterator[Cold]:
    with nodes_made(Node) as make:
        yield Cold(make())


def consumer_of(node: Node, group: str, options: ShareOptions = OPTIONS) -> ShareConsumer:
    return ShareConsumer(node.address, group=group, topic=TOPIC, options=options)


def number_of(body: bytes | memoryview) -> int:
    return int(bytes(body)[:6])


def take(
    consumer: ShareConsumer, count: int, each: Callable[[int], None] = lambda _taken: None
) -> list[tuple[int, int]]:
    """The first ``count`` messages that are handed out, accepted."""
    found: list[tuple[int, int]] = []
    for message in consumer:
        found.append((message.queue_id, number_of(message.body)))
        assert message.queue_offset == found[-1][1]
        consumer.accept(message)
        each(len(found))
        if len(found) == count:
            consumer.flush()
            return found
    raise AssertionError("it ends by itself")


def test_a_share_group_begins_with_the_first_sealed_message_and_gets_each_once(
    cold: Cold,
) -> None:
    def kill(taken: int) -> None:
        if taken in (100, 400):
            cold.kill()

    with consumer_of(cold.node, "workers") as consumer:
        found = take(consumer, len(ALL), kill)
    assert len(found) == len(set(found))
    assert set(found) == ALL


def test_an_ordered_group_and_one_with_a_filter_do_so_too(cold: Cold) -> None:
    with Admin(cold.node.address) as admin:
        admin.create_group("ordered", consumeMessageOrderly=True)
    with consumer_of(cold.node, "ordered") as consumer:
        assert set(take(consumer, len(ALL))) == ALL
    red = {(queue, number) for queue, number in ALL if TAGS[number % 3] == "red"}
    options = ShareOptions(max_in_flight=256, invisible_ms=60_000, filter="red")
    with consumer_of(cold.node, "of-red", options) as consumer:
        assert set(take(consumer, len(red))) == red


def test_rocketmqs_clients_pop_what_is_cold(cold: Cold) -> None:
    client = RemotingClient(cold.port)
    try:
        beat(client, "one", TOPIC)
        found: set[tuple[int, int]] = set()
        while len(found) < len(ALL):
            reply = client.ask(
                RequestCode.POP_MESSAGE, pop_fields(TOPIC, "poppers", pollTime=2_000)
            )
            if reply.code == ResponseCode.SYSTEM_ERROR:
                assert "cold storage away" in str(reply.remark)
                continue
            for one in popped(reply).taken:
                place = one.message.queue_id, number_of(one.body)
                assert place not in found
                found.add(place)
                ack(client, one, "poppers")
        assert found == ALL
    finally:
        client.close()


def test_a_place_that_is_away_is_told_and_the_group_goes_on_behind_nothing(cold: Cold) -> None:
    cold.forget_cache()
    away = cold.place.with_name("unmounted")
    cold.place.rename(away)
    try:
        wait_until(lambda: cold.counters()["away_since"], "it to be noticed")
        with ShareConsumer(cold.node.address, group="patient", topic=TOPIC, timeout_s=3) as waits:
            with pytest.raises(TimedOutError) as refused:
                waits.poll(2)
            assert "cold storage away since 20" in str(refused.value)
        away.rename(cold.place)
        with consumer_of(cold.node, "patient") as consumer:
            assert set(take(consumer, len(ALL))) == ALL
    finally:
        if away.exists():
            away.rename(cold.place)


def test_what_was_taken_before_the_log_lost_it_comes_again_out_of_pieces(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    place = node.folder / "pieces"
    start_client_node(node, file_size=262_144, cold={"place": str(place), "refresh_s": 1})
    write(node)
    short = ShareOptions(max_in_flight=8, invisible_ms=1_000)
    with consumer_of(node, "slow", short) as consumer:
        assert wait_until(lambda: consumer.poll(1), "some")
    seal(node, place)
    delete_oldest(node)
    with consumer_of(node, "slow") as consumer:
        assert set(take(consumer, len(ALL))) == ALL


def test_another_leader_hands_out_the_rest_of_the_same_pieces(
    make_node: Callable[[], Node],
) -> None:
    group, leader = cold_group(make_node, bytes_max="11MiB")

    def kill(taken: int) -> None:
        if taken == 300:
            leader.kill()

    # What the leader has handed out that nobody got comes again after that.
    options = ShareOptions(max_in_flight=64, invisible_ms=5_000)
    with ShareConsumer(group.addresses, group="workers", topic=TOPIC, options=options) as consumer:
        found = take(consumer, len(ALL), kill)
    # What was accepted and not flushed by then may come twice.
    assert set(found) == ALL
