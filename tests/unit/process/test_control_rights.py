"""Who may look at a node and who may change its group: asked of the kernel, not of the client."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ledgermq.model.errors import BusyError
from ledgermq.process import control
from ledgermq.process.control import CLIENTS_MAX, ControlServer
from ledgermq.raft_node.raft_control import AUDITED_VERBS
from tests.suite.patience import PATIENCE_S

NOBODY = 65_534
ASK = """
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.sendall(b'{"verb": "look"}\\n{"verb": "remove", "node": "n1"}\\n')
with one.makefile("rb") as lines:
    print(lines.readline().decode(), lines.readline().decode(), sep="", end="")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every account can look into."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lmq-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def asked_by(
    uid: int, folder: Path, verb: str = "remove"
) -> tuple[list[Mapping[str, object]], list[str]]:
    """What an account is answered, and the verbs that were carried out."""
    carried_out: list[str] = []

    def answer(verb: str, _request: Mapping[str, object]) -> Mapping[str, object]:
        carried_out.append(verb)
        return {"done": verb}

    selector = selectors.DefaultSelector()
    server = ControlServer(folder / "raft.sock", 0o666, selector, answer, audited=AUDITED_VERBS)
    asking = subprocess.Popen(
        [sys.executable, "-c", ASK, str(folder / "raft.sock"), verb],
        stdout=subprocess.PIPE,
        text=True,
        user=uid,
        env={},
    )
    while asking.poll() is None:
        for key, _ in selector.select(0.05):
            server.serve(key.fd, 0)
    server.close()
    selector.close()
    out, _ = asking.communicate()
    return [json.loads(line) for line in out.splitlines()], carried_out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two accounts")
@pytest.mark.parametrize("verb", ["remove", "add", "transfer", "forget", "resign", "hear"])
def test_an_account_that_may_produce_does_not_change_the_group(folder: Path, verb: str) -> None:
    (looked, removed), carried_out = asked_by(NOBODY, folder, verb)

    assert looked == {"done": "look"}
    assert carried_out == ["look"]
    error = removed["error"]
    assert isinstance(error, dict)
    assert error["kind"] == "NoPermissionError"
    assert f"uid={NOBODY}" in str(error["message"])


def test_the_nodes_own_account_changes_the_group(folder: Path) -> None:
    answers, carried_out = asked_by(os.geteuid(), folder)

    assert answers == [{"done": "look"}, {"done": "remove"}]
    assert carried_out == ["look", "remove"]


A, B = 10_001, 10_002


@pytest.mark.parametrize(
    ("held", "uid", "leaves"),
    [
        ([A] * CLIENTS_MAX, 0, A),
        ([A] * CLIENTS_MAX, B, A),
        ([A] * CLIENTS_MAX, A, None),
        ([A] * (CLIENTS_MAX - 3) + [B] * 3, B, A),
        ([A] * (CLIENTS_MAX // 2) + [B] * (CLIENTS_MAX // 2), A, None),
        ([*range(A, A + CLIENTS_MAX)], 0, A),
        ([0] * CLIENTS_MAX, A, None),
        ([0] * CLIENTS_MAX, 0, None),
    ],
)
def test_whoever_has_most_connections_makes_room_for_others_and_all_for_operators(
    folder: Path, held: list[int], uid: int, leaves: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = iter([*held, uid])
    monkeypatch.setattr(control, "_uid_of", lambda _asker: next(accounts))
    selector = selectors.DefaultSelector()
    path = folder / "control.sock"
    server = ControlServer(path, 0o666, selector, lambda verb, _request: {"done": verb})
    clients: list[socket.socket] = []
    for now_ns in range(len(held) + 1):
        client = socket.socket(socket.AF_UNIX)
        clients.append(client)
        client.connect(str(path))
        for key, _ in selector.select(PATIENCE_S):
            server.serve(key.fd, now_ns)
    if leaves is not None:
        clients[-1].sendall(b'{"verb": "look"}\n')
        for key, _ in selector.select(PATIENCE_S):
            server.serve(key.fd, len(held))
    with clients[-1].makefile("rb") as lines:
        answer = json.loads(lines.readline())
    gone = [number for number, client in enumerate(clients[:-1]) if has_ended(client)]
    for client in clients:
        client.close()
    server.close()
    selector.close()

    if leaves is None:
        assert (answer["error"]["kind"], gone) == ("BusyError", [])
    else:
        # The one of that account that was silent longest.
        assert (answer, gone) == ({"done": "look"}, [held.index(leaves)])


def test_who_is_refused_before_it_has_asked_is_told_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector = selectors.DefaultSelector()
    path = folder / "control.sock"
    server = ControlServer(path, 0o666, selector, lambda verb, _request: {"done": verb})
    clients = []

    def serve() -> None:
        for key, _ in selector.select(PATIENCE_S):
            server.serve(key.fd, 0)

    for _ in range(CLIENTS_MAX):
        clients.append(socket.socket(socket.AF_UNIX))
        clients[-1].connect(str(path))
        serve()
    encoded = control._encoded

    def encoded_late(document: Mapping[str, object]) -> bytes:
        if document.get("verb") == "status":
            serve()
        return encoded(document)

    monkeypatch.setattr(control, "_encoded", encoded_late)
    with pytest.raises(BusyError, match="too many clients"):
        control.ask(path, "status", timeout_s=PATIENCE_S)
    for client in clients:
        client.close()
    server.close()
    selector.close()


def has_ended(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
