"""Who may look at a node and who may change its group: asked of the kernel, not of the client."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ledgermq.process.control import ControlServer

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


def asked_by(uid: int, folder: Path) -> tuple[list[Mapping[str, object]], list[str]]:
    """What an account is answered, and the verbs that were carried out."""
    carried_out: list[str] = []

    def answer(verb: str, _request: Mapping[str, object]) -> Mapping[str, object]:
        carried_out.append(verb)
        return {"done": verb}

    selector = selectors.DefaultSelector()
    server = ControlServer(
        folder / "raft.sock", 0o666, selector, answer, audited=frozenset({"remove"})
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", ASK, str(folder / "raft.sock")],
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
def test_an_account_that_may_produce_does_not_change_the_group(folder: Path) -> None:
    (looked, removed), carried_out = asked_by(NOBODY, folder)

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
