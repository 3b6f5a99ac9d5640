"""What a producer of ``test_kills.py`` sent and was told, line by line in a file of its own.

    S time number first count queue unique_id     sent: ``count`` messages from ``first`` on
    A time number queue_offset:physical_offset:unique_id …     acknowledged, a field a message
    F time number ERROR                           no acknowledgement
    N time ERROR                                  nothing was sent

Times are of the monotonic clock of the machine, in ns; ``number`` is the frame's.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ledgermq.client.core.results import SendResult


class Frame(NamedTuple):
    """A batch as it was sent."""

    sent_ns: int
    first: int
    count: int
    queue_id: int
    unique_id: str


class Place(NamedTuple):
    """Where one message is stored."""

    queue_id: int
    queue_offset: int
    physical_offset: int


class JournalWriter:
    """The producer's end. Each line is one write, so that a reader sees whole lines soon."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def sent(self, number: int, frame: Frame) -> None:
        self._write("S", frame.sent_ns, number, *frame[1:])

    def acknowledged(self, number: int, results: Sequence[SendResult]) -> None:
        places = [f"{r.queue_offset}:{r.physical_offset}:{r.unique_id}" for r in results]
        self._write("A", time.monotonic_ns(), number, *places)

    def failed(self, number: int, error: Exception) -> None:
        self._write("F", time.monotonic_ns(), number, type(error).__name__)

    def not_sent(self, error: Exception) -> None:
        self._write("N", time.monotonic_ns(), type(error).__name__)

    def _write(self, *fields: object) -> None:
        line = " ".join(map(str, fields)).encode() + b"\n"
        assert os.write(self._file, line) == len(line)


@dataclass
class JournalReader:
    """The test's end: takes what was written since it looked last.

    Attributes:
        frames: all that was sent, by number.
        answered: when the acknowledgement of a frame came, in the order in which they came.
        places: what was acknowledged, by unique id.
        failures: errors of frames that were not acknowledged.
        given_up: when that was known of a frame, in the order in which it was.
        not_sent: how often nothing was sent.
    """

    path: Path
    frames: dict[int, Frame] = field(default_factory=dict)
    answered: dict[int, int] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    given_up: dict[int, int] = field(default_factory=dict)
    not_sent: Counter[str] = field(default_factory=Counter)
    _answers: list[tuple[int, int, list[str]]] = field(default_factory=list)
    _offset: int = 0

    def refresh(self) -> None:
        """Take the whole lines that came."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        self._offset += len(content)
        for line in content.decode().splitlines():
            kind, when, *fields = line.split(" ")
            if kind == "S":
                number, first, count, queue = map(int, fields[:4])
                self.frames[number] = Frame(int(when), first, count, queue, fields[4])
            elif kind == "A":
                self._answers.append((int(when), int(fields[0]), fields[1:]))
            elif kind == "F":
                self.failures[fields[1]] += 1
                self.given_up[int(fields[0])] = int(when)
            else:
                self.not_sent[fields[0]] += 1
        self._take_answers()

    def next_answer(self, since_ns: int) -> int | None:
        """When a frame that was sent after ``since_ns`` was acknowledged first."""
        self.refresh()
        return self._first(self.answered, since_ns)

    def next_outcome(self, since_ns: int) -> int | None:
        """The same, or when the producer gave up such a frame."""
        self.refresh()
        known = (self._first(one, since_ns) for one in (self.answered, self.given_up))
        return min((one for one in known if one is not None), default=None)

    def _first(self, outcomes: Mapping[int, int], since_ns: int) -> int | None:
        """When a frame that was sent after ``since_ns`` had its outcome first."""
        found = None
        for number, known_ns in reversed(outcomes.items()):
            if known_ns <= since_ns:
                break
            # A frame may be given up before the sender has written its own line.
            frame = self.frames.get(number)
            if frame is not None and frame.sent_ns > since_ns:
                found = known_ns
        return found

    def _take_answers(self) -> None:
        # The thread that takes an answer may write it before the sender has written its own line.
        early = []
        for answer in self._answers:
            when_ns, number, places = answer
            frame = self.frames.get(number)
            if frame is None:
                early.append(answer)
                continue
            assert len(places) == frame.count
            assert number not in self.answered
            self.answered[number] = when_ns
            for place in places:
                queue_offset, physical_offset, unique_id = place.split(":")
                assert unique_id not in self.places, f"{unique_id} was acknowledged twice"
                self.places[unique_id] = Place(
                    frame.queue_id, int(queue_offset), int(physical_offset)
                )
        self._answers = early
