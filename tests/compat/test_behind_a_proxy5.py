"""A directory that RocketMQ 5.5.1 wrote behind its proxy: taken over, used by the same clients, and
given back.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.broker_set import NAME_SERVER_PROGRAM
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocketmq import START_TIMEOUT_S, STOP_TIMEOUT_S
from tests.compat.rocketmq5 import BROKER_PROGRAM, begun, fetch, wait_booted
from tests.compat.test_rocksdb_tables5 import make_topic
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.grpc_clients import StepClient, python_client
from tests.process.remoting_client import RemotingClient
from tests.process.test_rocketmq_5_store import STORE

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

PROXY_PROGRAM = "org.apache.rocketmq.proxy.ProxyStartup"
TYPES = {"normal": "NORMAL", "fifo": "FIFO", "later": "DELAY", "decided": "TRANSACTION"}
MESSAGES = 24
TAKEN_S = 10
"""The shortest time that a message may be taken for."""

QUIET_S = 15
LATER_S = 45
DLEDGER = {"enableDLegerCommitLog": "true", "dLegerGroup": "oracle", "dLegerSelfId": "n0"}


@contextmanager
def rocketmq5_behind_its_proxy(
    root: Path, folder: Path, **settings: object
) -> Iterator[tuple[str, str]]:
    """Name server, broker and proxy on ``root``; addresses of the broker and the proxy."""
    names, port, grpc = free_port(), free_port(4) + 2, free_port()
    said = f"127.0.0.1:{names}"
    homes = [folder / name for name in ("names", "broker", "proxy")]
    for home in homes:
        home.mkdir(parents=True)
    broker: Mapping[str, object] = {
        "brokerName": "oracle", "brokerClusterName": "oracle", "brokerIP1": "127.0.0.1",
        "listenPort": port, "namesrvAddr": said, "storePathRootDir": root,
        "storePathCommitLog": root / "commitlog", "diskMaxUsedSpaceRatio": 95,
        "mappedFileSizeCommitLog": STORE["mapped_file_size_commit_log"],
        "mappedFileSizeConsumeQueue": STORE["mapped_file_size_consume_queue"],
        "maxHashSlotNum": STORE["max_hash_slot_num"], "maxIndexNum": STORE["max_index_num"],
        "mappedFileSizeTimerLog": 104_000, "transactionCheckInterval": 600_000, **settings,
    }  # fmt: skip
    proxy = {
        "rocketMQClusterName": "oracle", "proxyClusterName": "oracle", "namesrvAddr": said,
        "grpcServerPort": grpc, "remotingListenPort": free_port(), "proxyMode": "CLUSTER",
        "useEndpointPortFromRequest": True,
    }  # fmt: skip
    settings_of_proxy = homes[2] / "rmq-proxy.json"
    settings_of_proxy.write_text(json.dumps(proxy))
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.append(begun(NAME_SERVER_PROGRAM, homes[0], {"listenPort": names}))
        wait_booted(homes[0])
        running.append(begun(BROKER_PROGRAM, homes[1], broker))
        wait_booted(homes[1])
        tool = RemotingClient(f"127.0.0.1:{port}")
        # One of DLedger makes none before it leads, and the proxy wants one of its own.
        wait_until(lambda: is_made(tool, "led", ""), "a broker that leads", START_TIMEOUT_S)
        tool.close()
        running.append(begun(PROXY_PROGRAM, homes[2], {}, "-pc", str(settings_of_proxy)))
        told = homes[2] / "said"
        is_there = "rocketmq-proxy startup successfully"
        wait_until(lambda: is_there in told.read_text(), "RocketMQ's proxy", START_TIMEOUT_S)
        yield f"127.0.0.1:{port}", f"127.0.0.1:{grpc}"
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)


class Clients:
    """RocketMQ's Python client, one process for what is sent and received."""

    def __init__(self, client: StepClient) -> None:
        self._client = client
        self._consumed = ""
        client.done("start", topics=list(TYPES))

    def send(self, topic: str, *bodies: str, **fields: object) -> None:
        """Send these, one after the other; ``later`` by itself in ``LATER_S``."""
        for number, body in enumerate(bodies):
            in_order = {"group": f"g{number % 3}"} if topic == "fifo" else {}
            self._client.done("send", topic=topic, body=body, **in_order, **fields)

    def decide(self, *bodies: str) -> None:
        """Every second one is committed, the others are rolled back."""
        for number, body in enumerate(bodies):
            self._client.done("half", topic="decided", body=body)
            self._client.done("end", how="rollback" if number % 2 else "commit")

    def take(
        self, topic: str, count: int, *, is_done: Callable[[str], bool] = lambda _body: True
    ) -> list[str]:
        """Bodies of so many messages at least, and of what comes in ``QUIET_S`` behind them; those
        of which ``is_done`` says so are acknowledged.
        """
        if topic != self._consumed:
            self._consumed = topic
            self._client.done("consume", group=f"of-{topic}", topic=topic)
        found: list[str] = []

        def has_enough() -> bool:
            # A proxy refuses who has not told it his settings yet.
            outcome = self._client.do("receive", count=16, invisible_s=TAKEN_S)
            for one in outcome.get("messages", []):
                found.append(one["body"])
                if is_done(one["body"]):
                    self._client.done("ack", id=one["id"])
            return len(found) >= count

        wait_until(has_enough, f"{count} messages of {topic}")
        return found

    def rest(self, topic: str, count: int) -> Counter[str]:
        """All that is left of a topic: ``count`` messages, and nothing behind them."""
        found = self.take(topic, count)
        quiet_at = time.monotonic() + QUIET_S
        while time.monotonic() < quiet_at:
            found += self.take(topic, 0)
        return Counter(found)


def bodies(letter: str, count: int = MESSAGES) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def is_even(body: str) -> bool:
    return int(body[1:]) % 2 == 0


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, DLEDGER], ids=["plain", "dledger"])
def test_what_grpc_clients_had_not_acknowledged_comes_again_once_and_the_rest_not(
    make_node: Callable[[], Node], tmp_path: Path, settings: dict[str, str]
) -> None:
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    if settings:
        settings = {**settings, "dLegerPeers": f"n0-127.0.0.1:{free_port()}"}
    root = tmp_path / "store"
    with rocketmq5_behind_its_proxy(root, tmp_path / "first", **settings) as (broker, grpc):
        tool = RemotingClient(broker)
        assert all(is_made(tool, *row) for row in TYPES.items())
        tool.close()
        with python_client(tmp_path, grpc) as client:
            clients = Clients(client)
            clients.send("normal", *bodies("n"))
            clients.send("fifo", *bodies("f"))
            clients.send("later", *bodies("l", 3), delay_s=LATER_S)
            clients.decide(*bodies("d"))
            taken = clients.take("normal", MESSAGES, is_done=is_even)
    assert sorted(set(taken)) == sorted(bodies("n"))

    node, address = make_node(), f"127.0.0.1:{free_port()}"
    shutil.copytree(root, node.root)
    log = "dledger" if settings else "commitlog"
    node.configure(
        node={"self_id": "n0", "broker_name": "oracle"},
        store={**STORE, "log": log},
        listen={"grpc": address},
    )
    node.serve()
    with python_client(tmp_path, address) as client:
        clients = Clients(client)
        normal = clients.rest("normal", MESSAGES // 2)
        fifo = clients.take("fifo", MESSAGES)
        later = clients.rest("later", 3)
        decided = clients.rest("decided", MESSAGES // 2)
        clients.send("normal", *bodies("m"))
        clients.decide(*bodies("e"))
    assert node.stop() == 0
    assert normal == Counter(one for one in bodies("n") if not is_even(one))
    for group in range(3):
        of_group = [one for one in fifo if int(one[1:]) % 3 == group]
        assert of_group == bodies("f")[group::3]
    assert later == Counter(bodies("l", 3))
    assert decided == Counter(filter(is_even, bodies("d")))

    with (
        rocketmq5_behind_its_proxy(node.root, tmp_path / "second", **settings) as (_, grpc),
        python_client(tmp_path, grpc) as client,
    ):
        clients = Clients(client)
        assert clients.rest("normal", MESSAGES) == Counter(bodies("m"))
        assert clients.rest("decided", MESSAGES // 2) == Counter(filter(is_even, bodies("e")))
        assert clients.rest("later", 0) == clients.rest("fifo", 0) == Counter()


def is_made(tool: RemotingClient, topic: str, kind: str) -> bool:
    """Whether the broker has made a topic, of a type if ``kind`` is one."""
    try:
        make_topic(tool, topic, f"+message.type={kind}" if kind else "")
    except AssertionError:
        return False
    return True
