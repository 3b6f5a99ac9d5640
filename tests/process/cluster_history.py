"""What clients of a cluster were told, and whether that is what several-groups.md promises.

A client is a program that prints a line for each thing, with times in epoch ms:

    acked TOPIC KEY NUMBER TIME                             a message of its own is stored
    read TOPIC WRITER KEY NUMBER GROUP QUEUE OFFSET TIME    it was given one, of whichever client
    refused TIME KEY WHY                                    a send failed; it sends it again
    stopped SENT                                            all that it has sent is acknowledged

Messages of a key are numbered from 0, and sent one after the other, each until it is acknowledged.
Those of the key ``-`` may go to any queue, and several are under way.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

KEYS = 4
PLAIN = "-"

_REASON = re.compile(r"CODE: \d+|\w+(Error|Exception)\b|timeout|refused|not found", re.I)

Message = tuple[str, str, int]
"""Writer, key, number."""

Queue = tuple[str, str, int]
"""Topic, group, queue."""


def now_ms() -> int:
    """The clock of all clients, which are on one machine."""
    return time.time_ns() // 1_000_000


class Read(NamedTuple):
    """A message that a client was given."""

    message: Message
    queue: Queue
    offset: int
    at_ms: int


class History:
    """What one client has said, as far as its file was read.

    Attributes:
        delivers_in_order: whether its consumer promises the order of a queue, beside the offsets.
        keeps_places: whether a key changes its queue with the topic's queues alone.
        said: the file of what it has said.
    """

    def __init__(
        self, name: str, said: Path, *, delivers_in_order: bool, keeps_places: bool
    ) -> None:
        self.name = name
        self.delivers_in_order = delivers_in_order
        self.keeps_places = keeps_places
        self.acked: dict[Message, int] = {}
        self.acks: dict[str, list[int]] = defaultdict(list)
        self.reads: list[Read] = []
        self.known: set[Message] = set()
        self.refused: Counter[str] = Counter()
        self.sent = 0
        self.has_stopped = False
        self.said = said
        self._at = 0
        self._rest = b""

    def look(self) -> None:
        """Take the lines that were said since."""
        with self.said.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace").split(" "))

    def _take(self, words: Sequence[str]) -> None:
        match words:
            case ["acked", _, key, number, at_ms]:
                self.acked[self.name, key, int(number)] = int(at_ms)
                self.acks[key].append(int(at_ms))
            case ["read", topic, writer, key, number, group, queue, offset, at_ms]:
                message = writer, key, int(number)
                self.known.add(message)
                place = topic, group, int(queue)
                self.reads.append(Read(message, place, int(offset), int(at_ms)))
            case ["refused", _, key, *why]:
                # The error's class; of what RocketMQ's clients say the code, where they have one.
                found = _REASON.search(" ".join(why))
                reason = found[0] if found else "?"
                self.refused[f"{reason} of {'any queue' if key == PLAIN else 'a key'}"] += 1
            case ["stopped", sent]:
                self.sent = int(sent)
                self.has_stopped = True

    @property
    def is_busy(self) -> bool:
        """Whether something of each key was acknowledged, and it has read something."""
        return len(self.acks) == KEYS + 1 and bool(self.reads)

    def reads_from(self, group: str) -> bool:
        """Whether it was given something that is in this group."""
        return any(one.queue[1] == group for one in self.reads)

    def last_ack_ms(self) -> int:
        """When something of its own was acknowledged for the last time."""
        return max((times[-1] for times in self.acks.values()), default=0)

    def tail(self) -> str:
        """The end of what it has said."""
        return self.said.read_text(errors="replace")[-3_000:]

    def lacks(self, acked: Iterable[Message]) -> list[Message]:
        """What it has not been given yet of these."""
        return [one for one in acked if one not in self.known]

    def gap_ms(self, since_ms: int, until_ms: int, *, key: str | None = None) -> int:
        """The longest time in which nothing that it sent was acknowledged; of one key, of any."""
        if key is None:
            return _gap(sorted(at for one in self.acks.values() for at in one), since_ms, until_ms)
        return _gap(self.acks[key], since_ms, until_ms)

    def key_gap_ms(self, since_ms: int, until_ms: int) -> int:
        """The longest one of a single key: it waits for the group of its queue."""
        keys = (key for key in self.acks if key != PLAIN)
        return max((self.gap_ms(since_ms, until_ms, key=key) for key in keys), default=0)

    def read_gap_ms(self, since_ms: int, until_ms: int) -> int:
        """The longest time in which it was given nothing."""
        return _gap([one.at_ms for one in self.reads], since_ms, until_ms)

    def stored_twice(self) -> list[Message]:
        """Messages of which it was given more than one record, once for each but the first."""
        records = {(one.queue, one.offset): one.message for one in self.reads}
        counts = Counter(records.values())
        return [message for message, count in counts.items() for _ in range(count - 1)]

    def given_again(self) -> int:
        """How often it was given a record that it had been given before."""
        return len(self.reads) - len({(one.queue, one.offset) for one in self.reads})

    def out_of_order(self) -> list[str]:
        """Where a key's message came to a queue, or out of it, before one that was sent earlier.

        One that is there already may come again, behind others: its sender was not told of it.
        """
        found = [f"stored: {text}" for text in _turned(sorted(self.reads, key=lambda one: one[1:]))]
        if self.delivers_in_order:
            found += [f"given: {text}" for text in _turned(self.reads)]
        return found

    def places(self) -> dict[tuple[str, str], list[Queue]]:
        """Of each writer's key, the queues in which its messages are, one after the other."""
        first: dict[Message, Queue] = {}
        for one in self.reads:
            first.setdefault(one.message, one.queue)
        found: dict[tuple[str, str], list[Queue]] = defaultdict(list)
        for (writer, key, _), queue in sorted(first.items()):
            if key != PLAIN and found[writer, key][-1:] != [queue]:
                found[writer, key].append(queue)
        return found


def _turned(reads: Iterable[Read]) -> list[str]:
    last: dict[tuple[Queue, str, str], int] = {}
    seen: set[tuple[Queue, Message]] = set()
    found = []
    for message, queue, offset, _ in reads:
        writer, key, number = message
        if key == PLAIN or (queue, message) in seen:
            continue
        seen.add((queue, message))
        before = last.get((queue, writer, key), -1)
        if number < before:
            found.append(f"{message} after {before} in {queue} at {offset}")
        last[queue, writer, key] = max(number, before)
    return found


def _gap(times: Sequence[int], since_ms: int, until_ms: int) -> int:
    """The longest time between two of these; a time that has begun before counts from ``since``."""
    low, high = bisect_left(times, since_ms), bisect_left(times, until_ms)
    ends = [since_ms, *times[low:high], until_ms]
    return max(later - before for before, later in pairwise(ends))
