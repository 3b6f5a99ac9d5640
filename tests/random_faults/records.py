"""What clients asked and were told: JSON lines, a file for each client.

    {"number", "verb", "start": ns, …}                         about to be asked; with what was said
    {"number", "outcome": "ok", "end": ns, …}                                     with what was told
    {"number", "outcome": "fail" | "unknown", "end": ns, "error"}

*fail*: it has not happened, and never will. *unknown*: it may have happened, or may yet. What has
no second line is unknown, too. Times are of the machine's monotonic clock.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ledgermq.model.errors import LedgerError, OutcomeUnknownError, UnexpectedError


class Outcome(StrEnum):
    """What a client knows of what it asked for."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Operation:
    """One thing that a client asked for; ``end_ns`` is 0 as long as it was told nothing."""

    client: str
    number: int
    verb: str
    asked: dict[str, Any]
    start_ns: int
    end_ns: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    told: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def kind(self) -> str:
        """Of client: its name without a number."""
        return self.client.rstrip("0123456789")

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK


class Recorder:
    """One client's file; threads may share it. A line is one write: a reader sees it whole."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._number = 0

    def begin(self, verb: str, **asked: object) -> int:
        """Note what is asked next; the number to name it by."""
        with self._lock:
            number = self._number
            self._number += 1
        self._write(number=number, verb=verb, start=time.monotonic_ns(), **asked)
        return number

    def ok(self, number: int, **told: object) -> None:
        """Note what was told."""
        self._write(number=number, outcome=Outcome.OK, end=time.monotonic_ns(), **told)

    def failed(self, number: int, error: LedgerError, *, is_send: bool) -> None:
        """Note what an error says of it.

        Args:
            is_send: of a message: then what is retriable, and not unknown, has not happened. A
                question to a broker may have been carried out by one that did not answer any more.
        """
        doubtful = (OutcomeUnknownError, UnexpectedError)
        is_unknown = isinstance(error, doubtful) or (error.retriable and not is_send)
        self._write(
            number=number,
            outcome=Outcome.UNKNOWN if is_unknown else Outcome.FAIL,
            end=time.monotonic_ns(),
            error=f"{type(error).__name__}: {error}"[:300],
        )

    def note(self, verb: str, **asked: object) -> None:
        """Note what is so, without asking anybody."""
        self.ok(self.begin(verb, **asked))

    def _write(self, **fields: object) -> None:
        line = json.dumps(fields).encode() + b"\n"
        written = os.write(self._file, line)
        assert written == len(line)


class Records:
    """What all clients have written; ``refresh`` takes what came since."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._by_number: dict[tuple[str, int], Operation] = {}

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> Records:
        """Of operations that were made up."""
        made = cls(Path("/nowhere"))
        made._by_number = {(one.client, one.number): one for one in operations}
        return made

    def refresh(self) -> Records:
        """Take the whole lines that came; these records."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                content = file.read()
            content = content[: content.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(content)
            for line in content.splitlines():
                self._take(path.stem, json.loads(line))
        return self

    def all(self, *verbs: str) -> Iterator[Operation]:
        """Operations of these verbs, each client's in its order; all without one."""
        for one in self._by_number.values():
            if not verbs or one.verb in verbs:
                yield one

    def _take(self, client: str, line: dict[str, Any]) -> None:
        key = client, line.pop("number")
        if "verb" in line:
            verb, start_ns = line.pop("verb"), line.pop("start")
            self._by_number[key] = Operation(*key, verb, line, start_ns)
            return
        one = self._by_number[key]
        assert one.end_ns == 0, f"{key} was answered twice"
        one.outcome, one.end_ns = Outcome(line.pop("outcome")), line.pop("end")
        one.error = line.pop("error", "")
        one.told = line
