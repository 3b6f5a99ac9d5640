"""Looks at messages that were made to cost whoever looks at them more than they show."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledgermq.client import Admin, OutgoingMessage, Producer, Queries
from ledgermq.formats.records.body_compression import PLAIN_SIZE_MAX, Compression, compress_body
from ledgermq.formats.records.trace_record import TracedDelivery
from ledgermq.model.names.system_topics import TRACE_TOPIC
from tests.process.api_client import ApiClient, there
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.http_client import get
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

COUNT = 24
TRACED = "A1"
DELIVERY = TracedDelivery(1_700_000_000_000, "readers", "R1", TRACED, 0, "")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node with bodies that become as large as they may, of all kinds, and traces alike."""
    with nodes_made() as make:
        made = make()
        start_client_node(made, listen={"http": "unix"}, file_size=64 * 1024 * 1024)
        where = made.runtime / "http.sock"
        wait_until(lambda: there(where), "the observer to answer")
        address = f"ipc://{made.runtime}"
        zeros = bytes(PLAIN_SIZE_MAX)
        packed = {kind: compress_body(zeros, kind, 1) for kind in Compression}
        other = f"SubBefore\x011\x01r\x01g\x01q\x01{TRACED}0\x010\x01k\x02".encode()
        traces = DELIVERY.encode().encode() + other * (PLAIN_SIZE_MAX // len(other) - 1)
        with Producer(address) as one, Admin(address, timeout_s=PATIENCE_S) as admin:
            for number in range(COUNT):
                kind = tuple(Compression)[number % len(Compression)]
                sent = OutgoingMessage(packed[kind], keys=["k"], sys_flag=kind.sys_flag)
                one.send_batch("orders", [sent], queue_id=0).result(PATIENCE_S)
            deep = b"[" + b",".join([b"[" * 99 + b"]" * 99] * 300) + b"]"
            one.send("orders", deep, queue_id=1, keys=["deep"]).result(PATIENCE_S)
            told = OutgoingMessage(zlib.compress(traces, 9), keys=[TRACED], sys_flag=1)
            for _ in range(COUNT):
                one.send_batch(TRACE_TOPIC, [told], queue_id=0).result(PATIENCE_S)
            followed = OutgoingMessage(b"followed", unique_id=TRACED)
            one.send_batch("orders", [followed], queue_id=2).result(PATIENCE_S)
            wait_until(lambda: admin.topic("orders").messages == COUNT + 2, "dispatch")
            wait_until(lambda: admin.topic(TRACE_TOPIC).messages == COUNT, "dispatch of traces")
        yield made


@pytest.fixture
def api(node: Node) -> ApiClient:
    return ApiClient(node.runtime / "http.sock")


@pytest.fixture(autouse=True)
def lives(node: Node) -> Iterator[None]:
    """The observer is the same before and after each test."""
    pid = node.child("observer")["pid"]
    yield
    assert get(node.runtime / "http.sock", "/health/live").status == 200
    assert node.child("observer")["pid"] == pid
    assert not node.logged("Traceback")


@pytest.mark.parametrize("body_max", [0, 100_000])
def test_a_look_at_bodies_costs_what_it_shows_of_them(api: ApiClient, body_max: int) -> None:
    browsed = api.get("/topics/orders/messages", body_max=body_max)
    found = api.get("/topics/orders/find", key="k", body_max=body_max)
    timed = api.get("/topics/orders/find", begin=1, body_max=body_max)

    for told in (browsed, found, timed):
        assert told.status == 200, told.document
        rows = [row for row in told.document["messages"] if "bodyLongerThan" in row]
        assert {row["bodyLongerThan"] for row in rows} == {body_max}
        assert {row["body"] for row in rows} == {"\0" * body_max}
        assert len(rows) >= COUNT or told.document.get("next") or told.document.get("more")


def test_pages_of_the_console_show_such_bodies(node: Node, api: ApiClient) -> None:
    browser = ConsoleClient(node.runtime / "http.sock")
    (row, *_) = api.get("/topics/orders/messages", limit=1).document["messages"]
    deep = api.get("/topics/orders/find", key="deep").document["messages"][0]
    listed = browser.get("/messages?topic=orders&by=offset&at=0")
    shown = browser.get(f"/messages/one?id={row['offsetMsgId']}")
    lines = browser.get(f"/messages/one?id={deep['offsetMsgId']}&as=json")

    assert [one.status for one in (listed, shown, lines)] == [200, 200, 200]
    assert "over 256 B" in listed.text
    assert "over 64.0 KiB" in shown.text
    assert "and more lines" in lines.text and len(lines.body) < 600_000


def test_a_message_is_followed_whatever_is_written_among_its_traces(
    node: Node, api: ApiClient
) -> None:
    told = api.get("/message/track", id=TRACED, topic="orders")
    with Queries(f"ipc://{node.runtime}") as queries:
        message = queries.message_by_id(TRACED, topic="orders")
        assert message is not None
        life = queries.life(message)

    assert told.status == 200, told.document
    assert [one["what"] for one in told.document["life"]][-3:].count("delivered") == 1
    assert told.document["tracesFault"] == life.traces_fault == "more than 10000 records"


def test_many_who_look_at_once_wait_for_one_another_and_health_does_not(
    node: Node, api: ApiClient
) -> None:
    with ThreadPoolExecutor(16) as threads:
        asked = [
            threads.submit(api.get, "/topics/orders/messages", body_max=1_048_576, limit=1_000)
            for _ in range(32)
        ]
        while not all(one.done() for one in asked):
            assert get(node.runtime / "http.sock", "/health/live").status == 200
        statuses = {one.result().status for one in asked}

    assert statuses <= {200, 429, 503}
    assert 200 in statuses
