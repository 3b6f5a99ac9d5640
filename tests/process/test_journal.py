"""Real nodes write to a real journal."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket as sockets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.events import Event
from ledgermq.observer.console.node_pages import EVENTS_SHOWN
from ledgermq.process.log_lines import Journal, LineFormatter
from ledgermq.process.systemd.last_events import last_events
from tests.process.conftest import Node, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.http_client import listens
from tests.process.journald import Journald, running_journald, why_not
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

NOBODY = 65_534
FORGED = EVENTS_SHOWN
"""As many as are looked for: nothing else would be left to show."""

_WRITE = """
import socket, sys
journal = socket.socket(fileno=int(sys.argv[1]))
for line in sys.argv[2:]:
    journal.send(line.encode())
"""


@pytest.fixture
def journald() -> Iterator[Journald]:
    with running_journald() as running:
        yield running


def events(journald: Journald, event: Event) -> list[dict[str, Any]]:
    return journald.entries(f"MESSAGE_ID={event.value}")


def test_a_node_tells_the_journal_its_life_by_numbers(
    make_node: Callable[[], Node], journald: Journald
) -> None:
    node = make_node()
    node.configure(store={"mapped_file_size_commit_log": 262_144})
    node.launch(
        ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)],
        prefix=journald.prefix,
    )
    node.wait_ready()
    broker = node.pid("broker")
    os.kill(broker, signal.SIGKILL)
    # The one that was killed is told as running until it is reaped.
    wait_until(
        lambda: (child := node.child("broker"))["restarts"] == 1 and child["state"] == "running",
        "another broker",
    )
    status = node.stop()
    (stopped,) = wait_until(lambda: events(journald, Event.NODE_STOPPED), "the last line")
    (ready,) = events(journald, Event.NODE_READY)
    (died,) = events(journald, Event.PROCESS_DIED)
    roles = events(journald, Event.ROLE_CHANGED)
    recovered = events(journald, Event.LOG_RECOVERED)

    assert status == 0, [entry["MESSAGE"] for entry in journald.entries()]
    assert node.log.read_text() == ""
    assert (ready["LEDGERMQ_NODE"], ready["LEDGERMQ_PROCESS"]) == ("n7", "supervisor")
    assert (ready["LEDGERMQ_ROLE"], ready["PRIORITY"]) == ("leader", "6")
    assert ready["MESSAGE"].startswith("supervisor: node is ready after_ms=")
    assert (died["LEDGERMQ_CHILD"], died["LEDGERMQ_EXIT"]) == ("broker", "SIGKILL")
    assert (died["PRIORITY"], died["_TRANSPORT"]) == ("3", "journal")
    assert died["LEDGERMQ_TERM"] == ready["LEDGERMQ_TERM"] == "1"
    assert {entry["LEDGERMQ_PROCESS"] for entry in roles} == {"raft"}
    assert [entry["LEDGERMQ_PROCESS"] for entry in recovered] == ["writer"]
    assert Path(died["CODE_FILE"]).name == "supervisor.py"
    assert stopped["LEDGERMQ_CLEAN"] == "True"
    assert journald.entries("LEDGERMQ_EVENT=NODE_READY") == [ready]


def console_socket(node: Node, journald: Journald) -> Path:
    """Where the console of a node listens that has told the journal that it is ready."""
    node.configure(listen={"http": "unix"}, store={"mapped_file_size_commit_log": 262_144})
    node.launch(
        ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)],
        prefix=journald.prefix,
    )
    node.wait_ready()
    socket = node.runtime / "http.sock"
    wait_until(lambda: listens(socket), "the socket")
    wait_until(lambda: events(journald, Event.NODE_READY), "the line")
    return socket


def test_the_console_shows_the_events_of_the_journal(
    make_node: Callable[[], Node], journald: Journald
) -> None:
    socket = console_socket(make_node(), journald)
    console = ConsoleClient(socket, host="localhost")
    rows = json.loads(console.get("/events?export=json&table=events").text)
    page = console.get("/events").text

    told = {row["event"]: row for row in rows}
    assert (told["NODE_READY"]["process"], told["NODE_READY"]["level"]) == ("supervisor", "info")
    assert told["LOG_RECOVERED"]["process"] == "writer"
    assert [row["at"] for row in rows] == sorted((row["at"] for row in rows), reverse=True)
    assert "node is ready" in page and "There is nothing to see" not in page


def test_lines_of_another_account_are_no_events(
    make_node: Callable[[], Node], journald: Journald
) -> None:
    socket = console_socket(make_node(), journald)
    line = (
        "SYSLOG_IDENTIFIER=ledgermq\nPRIORITY=2\nMESSAGE=raft: forged\nLEDGERMQ_NODE=n7\n"
        f"LEDGERMQ_PROCESS=raft\nMESSAGE_ID={Event.NODE_STOPPED.value}\n"
    )
    write_as_nobody(journald, [f"{line}LEDGERMQ_EVENT=NODE_STOPPED\n"] * FORGED + [line])
    forged = wait_until(
        lambda: len(found := journald.entries("PRIORITY=2")) > FORGED and found, "the forged lines"
    )
    console = ConsoleClient(socket, host="localhost")
    page = console.get("/events").text
    told = last_events("n7", EVENTS_SHOWN, uid=os.geteuid(), journal=journald.folder).told

    assert {entry["_UID"] for entry in forged} == {str(NOBODY)}
    assert "node is ready" in page and "forged" not in page
    assert "NODE_READY" in {one.event for one in told}
    assert not [one for one in told if "forged" in one.text]


def write_as_nobody(journald: Journald, lines: list[str]) -> None:
    """Another account of the host writes to the journal, by its own protocol."""
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM)
    with connection:
        connection.connect(str(journald.socket))
        # Who sends is told by the kernel at each datagram, and not by who has connected.
        subprocess.run(
            [sys.executable, "-c", _WRITE, str(connection.fileno()), *lines],
            pass_fds=[connection.fileno()], user=NOBODY, check=True, timeout=PATIENCE_S,
        )  # fmt: skip


def test_what_libraries_print_is_in_the_journal_too(
    make_node: Callable[[], Node], journald: Journald
) -> None:
    node = make_node()
    node.config.write_text("[node]\nunknown = 1\n")
    node.launch(
        ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)],
        prefix=journald.prefix,
    )
    status = node.wait_end()

    assert status == 1
    wait_until(
        lambda: any("unknown" in e["MESSAGE"] for e in journald.entries("_TRANSPORT=stdout")),
        "the refusal",
    )


def test_a_line_of_a_megabyte_is_kept_whole(journald: Journald) -> None:
    lines = Journal("writer", "n0", instead=logging.NullHandler(), path=journald.socket)
    lines.setFormatter(LineFormatter("writer"))
    long = "part\n" * 200_000
    lines.handle(
        logging.getLogger("test").makeRecord(
            "test", logging.ERROR, "part.py", 1, "failed", (), None, "work", {"reason": long}
        )
    )
    lines.close()
    (entry,) = wait_until(lambda: journald.entries("PRIORITY=3"), "the line")

    assert entry["LEDGERMQ_REASON"] == long
