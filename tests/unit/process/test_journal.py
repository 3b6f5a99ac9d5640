"""What goes to the journal, byte by byte, at a socket as journald's."""

from __future__ import annotations

import array
import logging
import mmap
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.model.events import Event
from ledgermq.process.log_lines import Journal, LineFormatter, is_where_stderr_goes


class Kept(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket like the journal's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "socket"))
        bound.setblocking(False)
        yield bound


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """The journal of the writer of n0, at the socket, which need not be there."""
    made = Journal("writer", "n0", instead=Kept(), path=tmp_path / "socket")
    made.setFormatter(LineFormatter("writer"))
    yield made
    made.close()


def record(text: str, *values: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("test")
    return logger.makeRecord(
        "test", logging.WARNING, "/src/part.py", 42, text, values, None, "work", extra
    )


def decode(datagram: bytes) -> dict[str, str]:
    """Fields of a datagram, as systemd's description of the protocol has it."""
    fields = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, is_plain, value = line.partition(b"=")
        if not is_plain:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[8 + size + 1 :]
        assert name.decode() not in fields
        fields[name.decode()] = value.decode()
        datagram = rest
    return fields


def kept(journal: Journal) -> list[str]:
    instead = journal._instead
    assert isinstance(instead, Kept)
    return [one.getMessage() for one in instead.records]


def test_a_line_has_its_event_its_place_and_its_values(
    journal: Journal, journald: socket.socket
) -> None:
    journal.standing = lambda: ("leader", 7)
    journal.handle(record("disk full: free=%d", 3, event=Event.DISK_FULL, setting="a b"))

    assert decode(journald.recv(65_536)) == {
        "MESSAGE": "writer: disk full: free=3 setting='a b'",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "ledgermq",
        "SYSLOG_PID": str(os.getpid()),
        "CODE_FILE": "/src/part.py",
        "CODE_LINE": "42",
        "CODE_FUNC": "work",
        "LEDGERMQ_NODE": "n0",
        "LEDGERMQ_PROCESS": "writer",
        "LEDGERMQ_ROLE": "leader",
        "LEDGERMQ_TERM": "7",
        "MESSAGE_ID": Event.DISK_FULL.value,
        "LEDGERMQ_EVENT": "DISK_FULL",
        "LEDGERMQ_SETTING": "a b",
    }


def test_a_line_without_event_or_standing_has_neither(
    journal: Journal, journald: socket.socket
) -> None:
    journal.handle(record("child started"))
    fields = decode(journald.recv(65_536))

    assert fields.keys().isdisjoint({"MESSAGE_ID", "LEDGERMQ_EVENT", "LEDGERMQ_ROLE"})


def test_lines_of_a_value_stay_together(journal: Journal, journald: socket.socket) -> None:
    journal.handle(record("failed", reason="first=1\nsecond\n"))

    assert decode(journald.recv(65_536))["LEDGERMQ_REASON"] == "first=1\nsecond\n"


@pytest.mark.slow
def test_what_is_too_large_for_a_datagram_comes_as_a_sealed_file(
    journal: Journal, journald: socket.socket
) -> None:
    long = "x" * 10_000_000
    journal.handle(record("failed", reason=long))
    descriptors = array.array("i")
    content, ancillary, _, _ = journald.recvmsg(16, socket.CMSG_SPACE(descriptors.itemsize))
    descriptors.frombytes(ancillary[0][2])
    (fd,) = descriptors
    try:
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as held:
            fields = decode(bytes(held))
        with pytest.raises(PermissionError):
            os.write(fd, b"more")
    finally:
        os.close(fd)

    assert content == b""
    assert fields["LEDGERMQ_REASON"] == long


def test_a_full_journal_is_not_waited_for_and_the_loss_is_told(
    journal: Journal, journald: socket.socket
) -> None:
    while not journal.lost:
        journal.handle(record("one of many"))
    journal.handle(record("lost, too"))
    while journal.lost:
        journald.recv(65_536)
        journal.handle(record("next"))
    told = []
    while not told or "lines_lost" not in told[-1]:
        told.append(decode(journald.recv(65_536))["MESSAGE"])

    assert told[-1] == "writer: next lines_lost=2"
    assert kept(journal) == []


def test_without_a_journal_lines_go_where_they_went(journal: Journal) -> None:
    journal.handle(record("nobody listens"))

    assert kept(journal) == ["nobody listens"]


def test_the_variable_counts_for_the_stream_that_it_names_alone() -> None:
    own = os.fstat(2)

    assert is_where_stderr_goes(f"{own.st_dev}:{own.st_ino}")
    assert not is_where_stderr_goes(f"{own.st_dev}:{own.st_ino + 1}")
    assert not is_where_stderr_goes("")
