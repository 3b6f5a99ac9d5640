"""Log line format of all processes: a constant phrase, then its values.

    2026-01-31T12:00:00.123 INFO writer: process started pid=4711

They go to stderr; under systemd to the journal, with fields (``Journal``). With
``log.format = "json"`` each is an object of its own on stderr, wherever that goes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import socket
import sys
from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import BufferedWriter
from itertools import islice
from pathlib import Path

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import LogFormat, LogSection

SOCKET = "/run/systemd/journal/socket"
SEND_BUFFER_SIZE = 8 * 1024 * 1024
"""What libsystemd asks for: a burst of lines is not to find the socket full."""

_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "event"}
_LEVELS = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG = 7
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL

Fields = Iterator[tuple[str, str]]


def fields_of(record: logging.LogRecord) -> Fields:
    """The values that a line was given as ``extra``, by their names; its event is none of them."""
    for name, value in vars(record).items():
        if name not in _STANDARD:
            yield name, str(value)


def priority(level: int) -> int:
    """Syslog's number for a level of ``logging``."""
    return next((number for least, number in _LEVELS if level >= least), _DEBUG)


def is_where_stderr_goes(stream: str) -> bool:
    """Whether ``JOURNAL_STREAM`` means this process's stderr.

    The variable is inherited by whatever a service starts, also when that writes elsewhere.
    """
    found = os.fstat(2)
    return stream == f"{found.st_dev}:{found.st_ino}"


class Journal(logging.Handler):
    """Writes records to systemd's journal by its native protocol, never waiting for it.

        MESSAGE            the line, as it would stand on stderr
        PRIORITY           syslog's number for its level
        MESSAGE_ID         of an event of weight (``model.events``); the catalog explains it
        LEDGERMQ_EVENT     the event's name, as NODE_READY
        LEDGERMQ_NODE      node.self_id
        LEDGERMQ_PROCESS   which process of the node says it
        LEDGERMQ_ROLE      of the node in its group at that moment: follower, candidate, leader
        LEDGERMQ_TERM      the Raft term at that moment
        LEDGERMQ_…         values of the line, each under its name in capitals
        CODE_FILE, CODE_LINE, CODE_FUNC, SYSLOG_IDENTIFIER, SYSLOG_PID

        journalctl -u ledgermq LEDGERMQ_EVENT=ROLE_CHANGED

    The protocol (systemd, JOURNAL_NATIVE_PROTOCOL): one datagram a line, ``NAME=value``, or the
    name, a newline, the value's size as a little-endian number of 64 bits and the value where that
    has line breaks. What is too large for a datagram is handed over in a sealed file in memory.

    A line for which the journal has no room is lost, and the next one that is taken says how many
    were. A journal that is not there leaves the line to ``instead``.
    """

    def __init__(
        self,
        process: str,
        node: str,
        *,
        instead: logging.Handler,
        path: str | Path = SOCKET,
    ) -> None:
        """Address the journal at ``path``.

        Args:
            process: name of the process.
            node: node.self_id.
            instead: takes what the journal cannot.
        """
        super().__init__()
        self.standing: Callable[[], tuple[str, int]] | None = None
        """Tells role and term of the node; None while nobody knows."""
        self.lost = 0
        self._process = process
        self._node = node
        self._instead = instead
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_SIZE)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        datagram = b"".join(_encoded(name, value) for name, value in self._fields(record))
        try:
            self._send(datagram)
        except BlockingIOError:
            self.lost += 1
        except OSError:
            # Between two journals, or in a container without one: stderr is all there is.
            self._instead.handle(record)
        else:
            self.lost = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _send(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._path)
        except OSError as error:
            if isinstance(error, BlockingIOError) or not _is_too_large(error):
                raise
            with _sealed(datagram) as file:
                # Not socket.send_fds, which forgets the address.
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [file.fileno()]))
                self._socket.sendmsg([], [rights], 0, self._path)

    def _fields(self, record: logging.LogRecord) -> Fields:
        text = self.format(record)
        yield "MESSAGE", f"{text} lines_lost={self.lost}" if self.lost else text
        yield "PRIORITY", str(priority(record.levelno))
        yield "SYSLOG_IDENTIFIER", "ledgermq"
        yield "SYSLOG_PID", str(record.process)
        yield "CODE_FILE", record.pathname
        yield "CODE_LINE", str(record.lineno)
        yield "CODE_FUNC", record.funcName or ""
        yield "LEDGERMQ_NODE", self._node
        yield "LEDGERMQ_PROCESS", self._process
        if self.standing is not None:
            role, term = self.standing()
            yield "LEDGERMQ_ROLE", role
            yield "LEDGERMQ_TERM", str(term)
        event = getattr(record, "event", None)
        if event is not None:
            yield "MESSAGE_ID", event.value
            yield "LEDGERMQ_EVENT", event.name
        for name, value in fields_of(record):
            yield f"LEDGERMQ_{_NOT_IN_NAMES.sub('_', name.upper())}", value


def _encoded(name: str, value: str) -> bytes:
    content = value.encode("utf-8", "backslashreplace")
    if b"\n" in content:
        return b"%s\n%s%s\n" % (name.encode(), len(content).to_bytes(8, "little"), content)
    return b"%s=%s\n" % (name.encode(), content)


def _is_too_large(error: OSError) -> bool:
    # ENOBUFS: larger than the send buffer; both are final for a datagram of this size.
    return error.errno in (errno.EMSGSIZE, errno.ENOBUFS)


def _sealed(content: bytes) -> BufferedWriter:
    fd = os.memfd_create("ledgermq-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    file = os.fdopen(fd, "wb")
    file.write(content)
    file.flush()
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return file


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What a reader of the line would not see, or take for another line: values may be a client's."""


TEXT_MAX = 8_192
"""Characters of one value in a JSON line."""

TRACEBACK_MAX = TEXT_MAX
FIELDS_MAX = 32


class LineFormatter(logging.Formatter):
    """Formats a record as one line, with the fields given as ``extra`` behind its phrase."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in fields_of(record))
        line = f"{self._process}: {record.getMessage()}{' ' if fields else ''}{fields}"
        line = _CONTROL.sub(_escaped, line)
        if record.exc_info:
            # Indented: what an error quotes may have lines that look like ours.
            told = self.formatException(record.exc_info).splitlines()
            line = "\n    ".join((line, *(_CONTROL.sub(_escaped, one) for one in told)))
        return line


class DatedFormatter(LineFormatter):
    """The line with time and level in front, for a stderr that somebody reads."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {record.levelname} {super().format(record)}"


class LeveledFormatter(LineFormatter):
    """The line with ``<N>`` in front, from which the journal takes the level of what is on stderr;
    the journal has its own clock."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{priority(record.levelno)}>"
        return "\n".join(prefix + part for part in super().format(record).split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object on one line, of ASCII alone; what is long is cut, and says so.

    ``time``, ``level``, ``process``, ``node``, ``message``; ``event`` for one of weight; the line's
    values under ``fields``; ``traceback`` for an error that nobody caught.
    """

    def __init__(self, process: str, node: str) -> None:
        super().__init__()
        self._process = process
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        told: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "process": self._process,
            "node": self._node,
            "message": _cut(record.getMessage()),
        }
        event = getattr(record, "event", None)
        if event is not None:
            told["event"] = event.name
        fields = {name: _cut(value) for name, value in islice(fields_of(record), FIELDS_MAX)}
        if fields:
            told["fields"] = fields
        if record.exc_info:
            # Its end says what went wrong.
            told["traceback"] = _cut(self.formatException(record.exc_info)[-TRACEBACK_MAX:])
        return json.dumps(told)


def configure(process: str, log: LogSection, *, node: str) -> None:
    """Send what this process logs to the journal if stderr goes there, else to stderr.

    Args:
        process: name of the process, in front of each line.
        node: node.self_id.
    """
    root = logging.getLogger()
    for old in root.handlers:
        old.close()
    root.handlers[:] = [_target(process, node, log.format)]
    set_level(log.level)


def follow(page: CursorPage | None) -> None:
    """Have the journal's lines tell role and term as ``page`` has them; None before it is closed.

    Only this process's lines; without a journal nothing changes.
    """
    for one in logging.getLogger().handlers:
        if isinstance(one, Journal):
            one.standing = None if page is None else lambda: _standing(page)


def set_level(level: str) -> None:
    """Log from ``level`` on."""
    logging.getLogger().setLevel(level)


def _target(process: str, node: str, form: LogFormat) -> logging.Handler:
    lines = logging.StreamHandler(sys.stderr)
    if form is LogFormat.JSON:
        lines.setFormatter(JsonFormatter(process, node))
        return lines
    if not is_where_stderr_goes(os.environ.get("JOURNAL_STREAM", "")):
        lines.setFormatter(DatedFormatter(process))
        return lines
    lines.setFormatter(LeveledFormatter(process))
    journal = Journal(process, node, instead=lines)
    journal.setFormatter(LineFormatter(process))
    return journal


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return f"{at.removesuffix('+00:00')}Z"


def _cut(text: str) -> str:
    left = len(text) - TEXT_MAX
    return text if left <= 0 else f"{text[:TEXT_MAX]}… {left} more"


def _standing(page: CursorPage) -> tuple[str, int]:
    grant = page.read_grant()
    return grant.role.name.lower(), grant.term


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _quoted(text: str) -> str:
    return repr(text) if not text or any(c.isspace() for c in text) else text
