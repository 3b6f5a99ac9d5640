"""``ledgermq dev`` as who tries it runs it: what it prints works, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ledgermq.cli.node.dev_command import PORTS_EACH
from ledgermq.client import Admin, Consumer, Producer
from ledgermq.remoting.codes import RequestCode
from ledgermq.testing.local_broker import LocalBroker
from tests.process.conftest import is_alive, wait_until
from tests.process.group_nodes import free_port
from tests.process.node_start import SOURCES, run_command
from tests.process.pty_program import PtyProgram
from tests.process.remoting_client import RemotingClient
from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

pytestmark = pytest.mark.slow

DEV = ("-m", "ledgermq.cli.main", "dev")
WITHOUT_WEB = """
import sys
sys.modules["ledgermq.observer"] = None
from ledgermq.cli.main import main
sys.exit(main(["dev", "--json"]))
"""


@contextmanager
def started(*words: str, end: int = signal.SIGINT) -> Iterator[subprocess.Popen[str]]:
    """A program that is ended by a signal, and leaves no process."""
    program = subprocess.Popen(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    try:
        yield program
        pids = [one.pid for one in psutil.Process(program.pid).children(recursive=True)]
        program.send_signal(end)
        assert program.wait() == 0
        assert len(pids) >= 5
        assert [pid for pid in pids if is_alive(pid)] == []
    finally:
        program.kill()
        program.communicate()


def told(program: subprocess.Popen[str]) -> dict[str, Any]:
    assert program.stdout is not None
    document: dict[str, Any] = json.loads(program.stdout.readline())
    return document


def printed(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    lines = []
    for line in program.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            break
    return "".join(lines)


def typed(text: str, name: str) -> str:
    """What is printed behind a word is run by a shell; what that prints."""
    line = re.search(rf"^  {name} +(.*)$", text, re.M)
    assert line is not None, text
    done = subprocess.run(["sh", "-c", line[1]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def folder_of(text: str) -> Path:
    found = re.search(r"runs? after .* s in (/tmp/ledgermq-dev-\S+) \(removed", text)
    assert found is not None, text
    return Path(found[1])


def test_the_printed_lines_work_and_ctrl_c_leaves_nothing() -> None:
    with started(*DEV) as program:
        text = printed(program)
        folder = folder_of(text)
        name_server = re.search(r'setNamesrvAddr\("(.*)"\)', text)
        assert name_server is not None

        assert typed(text, "Python").endswith("[b'hello']\n")
        assert '"topic": "hello"' in typed(text, "curl")
        assert re.search(r"^hello +8 ", typed(text, "shell"), re.M)
        client = RemotingClient(name_server[1])
        assert client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
        client.close()
        address = re.search(r"^  address +(.*)$", text, re.M)
        assert address is not None
        # Who develops makes topics from the same program.
        with Admin(address[1], timeout_s=PATIENCE_S) as admin:
            admin.create_topic("made", queues=3)
            assert admin.topic("made").settings.write_queues == 3
        assert folder.is_dir()

    assert not folder.exists()


def test_a_kept_folder_is_gone_on_with_at_its_ports_and_by_one_alone(tmp_path: Path) -> None:
    # A short name, for there are sockets in it.
    kept = Path(short_folder(), tmp_path.parent.name + tmp_path.name[-8:])
    port = str(free_port(PORTS_EACH))
    try:
        words = ("--json", "--keep", str(kept))
        with started(*DEV, *words, "--port", port, end=signal.SIGTERM) as one:
            first = told(one)
            assert first["name_server"] == f"127.0.0.1:{port}"
            with Producer(first["address"]) as producer:
                producer.send("orders", b"kept").result()
            second = run_command("dev", "--keep", kept)
            assert (second.returncode, "used by another process" in second.stderr) == (2, True)
        refused = run_command("dev", "--keep", kept, "--nodes", "3")
        assert "another number" in refused.stderr

        with started(*DEV, *words) as again:
            assert told(again)["address"] == first["address"]
            with Consumer(first["address"], topic="orders", start="first") as consumer:
                assert [bytes(one.body) for one in consumer.poll(30)] == [b"kept"]
    finally:
        subprocess.run(["rm", "-r", kept], check=True)


def shown(terminal: PtyProgram, text: str) -> str:
    """The screen, once it shows ``text``."""

    def found() -> str:
        screen = "\n".join(terminal.lines())
        return screen if text in screen else ""

    screen: str = wait_until(found, f"{text!r} on the screen")
    return screen


def test_a_key_kills_the_leader_of_three_and_another_one_starts_it_again() -> None:
    with PtyProgram(["dev", "--nodes", "3"], columns=400, lines=40) as terminal:
        folder = folder_of(shown(terminal, "kills the leader"))
        terminal.type("k")
        shown(terminal, "leads after")
        terminal.type("s")
        shown(terminal, "started: all run")
        terminal.type("\x03")
        assert terminal.wait_end() == 0

    assert not folder.exists()


def test_a_node_without_the_webs_distribution_has_no_http_and_says_so() -> None:
    with started("-c", WITHOUT_WEB) as program:
        assert told(program)["http"] == []


def test_grpc_clients_are_served_where_they_are_asked_for() -> None:
    pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")
    from ledgermq.gateway.rpc.definition import RpcCode
    from tests.process.grpc_clients import RawClient

    with started(*DEV, "--grpc") as program:
        text = printed(program)
        endpoints = re.search(r'setEndpoints\("(.*)"\)', text)
        address = re.search(r"^  address +(.*)$", text, re.M)
        assert endpoints is not None and address is not None
        with Admin(address[1], timeout_s=PATIENCE_S) as admin:
            admin.create_topic("by-grpc", queues=1)
        client = RawClient(endpoints[1])
        assert client.send("by-grpc").status.code == RpcCode.OK
        client.close()


def test_what_a_killed_one_left_is_removed_by_the_next() -> None:
    killed = LocalBroker()
    folder = Path(killed.nodes[0]["log"]).parents[1]
    process = psutil.Process(killed.pid)
    nodes = process.children(recursive=True)
    process.kill()
    wait_until(lambda: not any(is_alive(one.pid) for one in nodes), "the end of its node")
    assert folder.is_dir()

    with LocalBroker():
        assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "80"), "must be 1024 to"),
        (("--port", "http"), "must be 1024 to 65512: http"),
        (("--nodes", "2"), "unknown: 2; there are 1, 3"),
        (("--keep", "/proc/none/of/it"), "folder cannot be made"),
        (("--keep", str(SOURCES)), "folder holds something else"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(words: tuple[str, ...], said: str) -> None:
    done = run_command("dev", *words)

    assert done.returncode == 1
    assert said in done.stderr
