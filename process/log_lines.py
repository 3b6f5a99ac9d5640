"""Log lines on stderr, one format for all processes: a constant phrase, then its values.

    2026-01-31T12:00:00.123 INFO writer: process started pid=4711

Under systemd the journal has its own clock, and takes the level from ``<N>`` in front of the line.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_JOURNAL_LEVELS = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_JOURNAL_DEBUG = 7


class LineFormatter(logging.Formatter):
    """Formats a record as one line, with the fields given as ``extra`` behind its phrase."""

    def __init__(self, process: str, *, journal: bool) -> None:
        super().__init__()
        self._process = process
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
        fields = " ".join(
            f"{name}={_text(value)}"
            for name, value in vars(record).items()
            if name not in _STANDARD
        )
        line = f"{self._process}: {record.getMessage()}{' ' if fields else ''}{fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        if self._journal:
            prefix = f"<{_journal_level(record.levelno)}>"
            return "\n".join(prefix + part for part in line.split("\n"))
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f"{at.removesuffix('+00:00')}Z {record.levelname} {line}"


def configure(process: str, level: str) -> None:
    """Send what this process logs to stderr, and nowhere else.

    Args:
        process: name of the process, in front of each line.
        level: least level that is logged, by name.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(process, journal="JOURNAL_STREAM" in os.environ))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """Log from ``level`` on."""
    logging.getLogger().setLevel(level)


def _text(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text


def _journal_level(level: int) -> int:
    for least, number in _JOURNAL_LEVELS:
        if level >= least:
            return number
    return _JOURNAL_DEBUG
