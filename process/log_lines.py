"""Log line format of all processes: a constant phrase, then its values.

    2026-01-31T12:00:00.123 INFO writer: process started pid=4711

They go to stderr; under systemd to the journal, with fields (``process.systemd.journal``).
"""

from __future__ import annotations

import logging
import os
import re
import sys
from datetime import UTC, datetime

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.process.systemd.journal import Journal, fields_of, is_where_stderr_goes, priority

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What a reader of the line would not see, or take for another line: values may be a client's."""


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
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f"{at.removesuffix('+00:00')}Z {record.levelname} {super().format(record)}"


class LeveledFormatter(LineFormatter):
    """The line with ``<N>`` in front, from which the journal takes the level of what is on stderr;
    the journal has its own clock."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
        prefix = f"<{priority(record.levelno)}>"
        return "\n".join(prefix + part for part in super().format(record).split("\n"))


def configure(process: str, level: str, *, node: str) -> None:
    """Send what this process logs to the journal if stderr goes there, else to stderr.

    Args:
        process: name of the process, in front of each line.
        level: least level that is logged, by name.
        node: node.self_id.
    """
    root = logging.getLogger()
    for old in root.handlers:
        old.close()
    root.handlers[:] = [_target(process, node)]
    set_level(level)


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


def _target(process: str, node: str) -> logging.Handler:
    lines = logging.StreamHandler(sys.stderr)
    if not is_where_stderr_goes(os.environ.get("JOURNAL_STREAM", "")):
        lines.setFormatter(DatedFormatter(process))
        return lines
    lines.setFormatter(LeveledFormatter(process))
    journal = Journal(process, node, instead=lines)
    journal.setFormatter(LineFormatter(process))
    return journal


def _standing(page: CursorPage) -> tuple[str, int]:
    grant = page.read_grant()
    return grant.role.name.lower(), grant.term


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _quoted(text: str) -> str:
    return repr(text) if not text or any(c.isspace() for c in text) else text
