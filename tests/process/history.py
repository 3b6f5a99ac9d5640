"""What producers and consumers of a group asked and were told, as JSON lines; one file a process.

    {"kind": "append", "process", "number", "queue", "values": […], "start": ns}    about to be sent
    {"kind": "acked", "process", "number", "offsets": […], "end": ns}     queue offset of each value
    {"kind": "refused", "process", "number", "error", "end": ns}                  nothing was stored
    {"kind": "unknown", "process", "number", "error", "end": ns}          something may be, or not
    {"kind": "read", "process", "queue", "first", "values": […], "is_end", "start": ns, "end": ns}

Values are unique over all processes. A read gave ``values`` for queue offsets from ``first`` on;
``is_end``: and nothing may be behind them. (A read without values says less: what was acknowledged
comes to the queues a moment later.) Times are of the machine's monotonic clock. An append whose
process died before it was told anything has no second line: it is unknown.
``tests/linearizability`` reads the same lines.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ledgermq.model.errors import LedgerError, OutcomeUnknownError


class Outcome(StrEnum):
    """What a producer knows of an append."""

    ACKED = "acked"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Append:
    """Values that were sent together to one queue; ``end_ns`` is 0 as long as nothing was told."""

    process: str
    number: int
    queue: int
    values: list[str]
    start_ns: int
    end_ns: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    offsets: list[int] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """Values that a consumer was given, the first of which has queue offset ``first``."""

    process: str
    queue: int
    first: int
    values: Sequence[str]
    is_end: bool
    start_ns: int
    end_ns: int


class HistoryWriter:
    """The end of one process; threads may share it. A line is one write: a reader sees it whole."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._process = process
        self._lock = threading.Lock()
        self._appends = 0

    def append(self, queue: int, values: Sequence[str]) -> int:
        """Note what is sent next; the number to name it by."""
        with self._lock:
            number = self._appends
            self._appends += 1
        self._write(
            kind="append",
            number=number,
            queue=queue,
            values=list(values),
            start=time.monotonic_ns(),
        )
        return number

    def acked(self, number: int, offsets: Sequence[int]) -> None:
        """Note where the values are."""
        self._write(kind="acked", number=number, offsets=list(offsets), end=time.monotonic_ns())

    def failed(self, number: int, error: LedgerError) -> None:
        """Note that there is no acknowledgement, and whether that means that nothing was stored."""
        is_unknown = isinstance(error, OutcomeUnknownError)
        kind = Outcome.UNKNOWN if is_unknown else Outcome.REFUSED
        self._write(kind=kind, number=number, error=type(error).__name__, end=time.monotonic_ns())

    def read(
        self, queue: int, first: int, values: Sequence[str], *, is_end: bool, start_ns: int
    ) -> None:
        """Note what a read that began at ``start_ns`` and has ended now gave."""
        self._write(
            kind="read",
            queue=queue,
            first=first,
            values=list(values),
            is_end=is_end,
            start=start_ns,
            end=time.monotonic_ns(),
        )

    def _write(self, **fields: object) -> None:
        line = json.dumps({"process": self._process, **fields}).encode() + b"\n"
        written = os.write(self._file, line)
        assert written == len(line)


class History:
    """What several processes have written; ``refresh`` takes what came since."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self.appends: dict[tuple[str, int], Append] = {}
        self.reads: list[Read] = []
        self._offsets: Counter[Path] = Counter()

    def refresh(self) -> History:
        """Take the whole lines that came; this history."""
        for path in self.paths:
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._offsets[path])
                content = file.read()
            content = content[: content.rfind(b"\n") + 1]
            self._offsets[path] += len(content)
            for line in content.splitlines():
                self._take(json.loads(line))
        return self

    def count(self, outcome: Outcome) -> int:
        """Values of appends with this outcome."""
        return sum(len(one.values) for one in self.appends.values() if one.outcome is outcome)

    def last_acked_start_ns(self) -> dict[str, int]:
        """When the latest append of each process that was acknowledged had begun."""
        return _latest_start_ns(
            one for one in self.appends.values() if one.outcome is Outcome.ACKED
        )

    def last_ended_start_ns(self) -> dict[str, int]:
        """The same of the latest append of which the process was told anything, or gave it up."""
        return _latest_start_ns(one for one in self.appends.values() if one.end_ns)

    def _take(self, line: dict[str, Any]) -> None:
        process, kind = line["process"], line["kind"]
        if kind == "read":
            first, is_end = line["first"], line["is_end"]
            self.reads.append(
                Read(
                    process, line["queue"], first, line["values"], is_end, line["start"],
                    line["end"],
                )
            )  # fmt: skip
            return
        key = process, line["number"]
        if kind == "append":
            assert key not in self.appends
            self.appends[key] = Append(*key, line["queue"], line["values"], line["start"])
            return
        one = self.appends[key]
        assert one.end_ns == 0, f"{key} was answered twice"
        one.outcome, one.end_ns = Outcome(kind), line["end"]
        one.offsets, one.error = line.get("offsets", []), line.get("error", "")


def _latest_start_ns(appends: Iterable[Append]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in appends:
        found[one.process] = max(found.get(one.process, 0), one.start_ns)
    return found
