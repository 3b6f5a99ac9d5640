"""The control socket: the status, and everything that is not a request for it."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.page_slots import PutLock
from ledgermq.model.errors import ConfigError, ProtocolError, StorageError
from ledgermq.process import control
from tests.process.conftest import Node, StartNode, wait_until

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
"""What is younger has the right unit, on a machine however busy."""


@pytest.fixture
def node(start_small_node: StartNode) -> Node:
    return start_small_node()


def connect(node: Node) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(node.runtime / "control.sock"))
    return connection


def answers(connection: socket.socket, count: int) -> list[dict[str, Any]]:
    with connection.makefile("rb") as lines:
        return [json.loads(lines.readline()) for _ in range(count)]


def error_of(node: Node, line: bytes) -> dict[str, Any]:
    with connect(node) as connection:
        connection.sendall(line)
        (answer,) = answers(connection, 1)
    error: dict[str, Any] = answer["error"]
    return error


def test_status_tells_role_cursors_and_names(node: Node) -> None:
    status = node.status()

    assert status["state"] == "ready"
    assert status["raft"] == {
        "role": "leader",
        "term": 3,
        "granted": True,
        "stage": "tables applied",
        "broker_id": 0,
    }
    assert status["node"]["self_id"] == "n7"
    assert status["ack_mode"] == "majority-fsync"
    assert status["cursors"]["written"] == {"position": 4_096, "index": 7, "term": 3}
    assert status["cursors"]["dispatched"] == 4_096
    assert status["cursors"]["not_durable_bytes"] == 0
    assert 0 <= status["cursors"]["last_flush_age_ms"] < HOUR_MS
    assert status["kernel"] in ("compiled", "plain")
    assert set(status["versions"]) == {"ledgermq", "python", "pyzmq", "libzmq", "linux"}
    assert 0 < status["uptime_s"] < HOUR_MS / 1_000


def test_status_tells_what_every_process_uses(node: Node) -> None:
    processes = {process["role"]: process for process in node.status()["processes"]}

    assert list(processes) == ["supervisor", "raft", "writer", "dispatcher", "broker"]
    for process in processes.values():
        assert process["state"] == "running"
        assert 0 < process["pss"] <= process["rss"]
        assert process["cpu_percent"] >= 0
        assert process["beat_age_ms"] < HOUR_MS
        assert (process["restarts"], process["last_exit"]) == (0, None)


def test_cpu_is_measured_over_the_time_between_two_questions(node: Node) -> None:
    node.status()
    at = time.monotonic()
    wait_until(lambda: time.monotonic() > at + 1.1, "an interval")
    percents = [process["cpu_percent"] for process in node.status()["processes"]]

    # Nearly idle, whereas the figure since the start holds the imports of the supervisor.
    assert all(percent < 60 for percent in percents), percents


def test_status_tells_who_holds_the_put_lock_and_for_how_long(node: Node) -> None:
    with CursorPage.attach(node.runtime / "cursors") as page:
        page.publish_put_lock(PutLock(4_711, time.monotonic_ns() - 250_000_000, 9, 2, 1))
    lock = node.status()["put_lock"]
    held_ms = lock.pop("held_ms")

    assert lock == {"holder": 4_711, "taken": 9, "slow": 2, "recovered": 1}
    assert 250 <= held_ms < HOUR_MS


def test_status_tells_the_disk_and_what_the_store_takes_of_it(node: Node) -> None:
    (node.root / "ledgermq" / "ballast").write_bytes(bytes(1_000_000))
    disk: dict[str, Any] = wait_until(
        lambda: (found := node.status()["disk"])["used_by_store"] is not None and found, "a count"
    )

    assert disk["path"] == str(node.root)
    assert disk["used_by_store"] >= 1_000_000
    assert 0 < disk["free"] < disk["total"]


def test_status_names_counters(node: Node) -> None:
    counters = node.status()["counters"]

    assert counters["writer"]["messages"] == 0
    assert counters["supervisor"]["children_died"] == 0


def test_one_connection_may_ask_again(node: Node) -> None:
    with connect(node) as connection:
        connection.sendall(b'{"verb": "status"}\n' * 3 + b'{"verb": "sta')
        first = answers(connection, 3)
        connection.sendall(b'tus"}\n')
        (last,) = answers(connection, 1)

    assert [answer["state"] for answer in [*first, last]] == ["ready"] * 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"status\n", "not a line of JSON"),
        (b"\n", "not a line of JSON"),
        (b"\xff\xfe\n", "not a line of JSON"),
        (b"[" * 4_000 + b"\n", "not a line of JSON"),
        (b'["status"]\n', "not a JSON object"),
        (b"{}\n", "verb is missing"),
        (b'{"verb": 7}\n', "verb is missing"),
        (b'{"verb": "halt"}\n', "unknown verb"),
        (b"x" * 5_000, "request too long"),
    ],
)
def test_a_bad_request_is_answered_with_an_error(node: Node, line: bytes, message: str) -> None:
    error = error_of(node, line)

    assert error["kind"] == "ProtocolError"
    assert error["number"] == ProtocolError.number
    assert error["message"].startswith(message)
    assert node.status()["state"] == "ready"


def test_a_refused_request_does_not_end_the_connection(node: Node) -> None:
    with connect(node) as connection:
        connection.sendall(b"nonsense\n" + b'{"verb": "status"}\n')
        refused, answered = answers(connection, 2)

    assert "error" in refused
    assert answered["state"] == "ready"


def test_too_many_clients_are_told_so_and_others_are_kept(node: Node) -> None:
    clients = [connect(node) for _ in range(control.CLIENTS_MAX)]
    one_more = connect(node)
    (refused,) = answers(one_more, 1)
    clients[0].sendall(b'{"verb": "status"}\n')
    (kept,) = answers(clients[0], 1)
    for client in [*clients, one_more]:
        client.close()
    wait_until(lambda: "error" not in probe(node), "room for another client")

    assert refused["error"]["kind"] == "BusyError"
    assert kept["state"] == "ready"


def probe(node: Node) -> dict[str, Any]:
    with connect(node) as connection:
        connection.sendall(b'{"verb": "status"}\n')
        return answers(connection, 1)[0]


def test_a_client_that_does_not_read_holds_up_nobody(node: Node) -> None:
    with connect(node) as deaf:
        deaf.setblocking(False)
        sent = 0
        try:
            for _ in range(20_000):
                sent += deaf.send(b'{"verb": "status"}\n')
        except BlockingIOError:
            pass
        # Who waited for the deaf one would wait for ever.
        state = node.status()["state"]

    assert sent > 0
    assert state == "ready"


def test_the_socket_has_the_mode_of_the_settings(start_small_node: StartNode) -> None:
    node = start_small_node(listen={"socket_mode": 0o600})
    mode = stat.S_IMODE((node.runtime / "control.sock").stat().st_mode)

    assert mode == 0o600


@pytest.mark.parametrize(
    ("socket_mode", "wanted"), [(0o600, 0o700), (0o660, 0o750), (0o666, 0o755)]
)
def test_who_may_use_the_sockets_gets_into_the_folder_that_the_node_makes(
    start_small_node: StartNode, socket_mode: int, wanted: int
) -> None:
    node = start_small_node(listen={"socket_mode": socket_mode})

    assert stat.S_IMODE(node.runtime.stat().st_mode) == wanted


def test_the_socket_is_gone_after_the_node(node: Node) -> None:
    node.stop()

    assert not (node.runtime / "control.sock").exists()
    with pytest.raises(StorageError, match="no node is running there"):
        control.ask(node.runtime / "control.sock", "status", timeout_s=1)


def test_a_socket_that_nobody_listens_on_is_told_apart_from_a_deaf_node(tmp_path: Path) -> None:
    path = Path(f"/tmp/lmq-{os.getpid()}.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    try:
        with pytest.raises(StorageError, match="no node is running there"):
            control.ask(path, "status", timeout_s=1)
    finally:
        path.unlink()


def test_a_path_too_long_for_a_socket_is_refused_with_its_limit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"listen\.runtime_dir is too long.*may have 107"):
        control.check_path(tmp_path / ("d" * 120) / "control.sock")
