"""The API while processes of the node die or hang, and where there is more than it may tell."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from ledgermq.client import Admin, Producer
from tests.process.api_client import ApiClient, there
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.http_client import get
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
LARGE = 24
"""Messages of a MiB: six times what one answer has."""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start_client_node(made, listen={"http": "unix"}, file_size=64 * MIB)
        where = made.runtime / "http.sock"
        wait_until(lambda: there(where), "the observer to answer")
        address = f"ipc://{made.runtime}"
        with Producer(address) as one, Admin(address, timeout_s=PATIENCE_S) as admin:
            for _ in range(LARGE):
                one.send("orders", os.urandom(MIB), queue_id=0).result()
            wait_until(lambda: admin.topic("orders").messages == LARGE, "dispatch")
        yield made


@pytest.fixture
def api(node: Node) -> ApiClient:
    return ApiClient(node.runtime / "http.sock")


def test_an_answer_ends_where_it_is_large_and_says_how_to_go_on(api: ApiClient) -> None:
    offsets: list[int] = []
    next_: int | None = 0
    answers = 0
    while next_ is not None:
        told = api.get("/topics/orders/messages", offset=next_, limit=1_000, body_max=MIB)
        assert told.status == 200, told.document
        assert len(told.answer.body) < 8 * MIB
        offsets += [row["queueOffset"] for row in told.document["messages"]]
        next_ = told.document["next"]
        answers += 1

    assert offsets == list(range(LARGE))
    assert answers > 2
    found = api.get("/topics/orders/find", begin=1, limit=1_000, body_max=MIB).document
    assert found["more"] is True and 0 < len(found["messages"]) < LARGE


def test_many_at_once_do_not_end_the_observer(node: Node, api: ApiClient) -> None:
    from concurrent.futures import ThreadPoolExecutor

    pid = node.child("observer")["pid"]

    def ask(_: int) -> int:
        return api.get("/topics/orders/messages", limit=1_000, body_max=MIB).status

    with ThreadPoolExecutor(40) as threads:
        statuses = set(threads.map(ask, range(120)))

    assert statuses <= {200, 429, 503}
    assert 200 in statuses
    assert node.child("observer")["pid"] == pid


def test_a_broker_that_was_started_again_is_asked_as_before(node: Node, api: ApiClient) -> None:
    assert api.get("/topics").status == 200
    before = node.child("broker")["restarts"]
    os.kill(node.child("broker")["pid"], signal.SIGKILL)
    wait_until(lambda: node.child("broker")["restarts"] > before, "a restart")
    wait_until(lambda: api.get("/topics").status == 200, "the answer")

    assert api.get("/topics/orders").document["queues"][0]["end"] == LARGE


@pytest.mark.long
def test_a_broker_that_hangs_holds_up_nobody_else(node: Node, api: ApiClient) -> None:
    pid = node.child("broker")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        refused = api.get("/topics/orders")
        took_s = time.monotonic() - began
        health = get(node.runtime / "http.sock", "/health/live")
        status = api.get("/status")
    finally:
        # The supervisor may have killed it meanwhile.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: api.get("/topics/orders").status == 200, "the answer")

    assert refused.status in (200, 503)
    assert took_s < 60
    assert (health.status, status.status) == (200, 200)
