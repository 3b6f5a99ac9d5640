"""Real nodes write to a real journal."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.events import Event
from ledgermq.process.log_lines import Journal, LineFormatter
from tests.process.conftest import Node, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.http_client import listens
from tests.process.journald import Journald, running_journald, why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


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


def test_the_console_shows_the_events_of_the_journal(
    make_node: Callable[[], Node], journald: Journald
) -> None:
    node = make_node()
    node.configure(listen={"http": "unix"}, store={"mapped_file_size_commit_log": 262_144})
    node.launch(
        ["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)],
        prefix=journald.prefix,
    )
    node.wait_ready()
    socket = node.runtime / "http.sock"
    wait_until(lambda: listens(socket), "the socket")
    console = ConsoleClient(socket, host="localhost")
    wait_until(lambda: events(journald, Event.NODE_READY), "the line")
    rows = json.loads(console.get("/events?export=json&table=events").text)
    page = console.get("/events").text

    told = {row["event"]: row for row in rows}
    assert (told["NODE_READY"]["process"], told["NODE_READY"]["level"]) == ("supervisor", "info")
    assert told["LOG_RECOVERED"]["process"] == "writer"
    assert [row["at"] for row in rows] == sorted((row["at"] for row in rows), reverse=True)
    assert "node is ready" in page and "There is nothing to see" not in page


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
