"""Log line format of all processes: a constant phrase, then its values.

    2026-01-31T12:00:00.123 INFO writer: process started pid=4711

They go to stderr; under systemd to the journal, with fields (``process.systemd.journal``). With
``log.format = "json"`` each is an object of its own on stderr, wherever that goes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from itertools import islice

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import LogFormat, LogSection
from ledgermq.process.systemd.journal import Journal, fields_of, is_where_stderr_goes, priority

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
        """The line; a traceback follows on lines of its own."""
        return f"{_time(record)} {record.levelname} {super().format(record)}"


class LeveledFormatter(LineFormatter):
    """The line with ``<N>`` in front, from which the journal takes the level of what is on stderr;
    the journal has its own clock."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
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
