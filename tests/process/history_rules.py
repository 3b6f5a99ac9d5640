"""What a history and the logs behind it must meet: nothing lost, doubled, invented or moved.

Each rule returns what breaks it, a sentence a case; an empty list is what is hoped for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from tests.process.history import Append, History, Outcome

SHOWN_MAX = 20


class Stored(NamedTuple):
    """A message as a log has it; lists of them are in the order of the log."""

    queue: int
    offset: int
    value: str
    unique_id: str


def violations(history: History, stored: Sequence[Stored]) -> list[str]:
    """All that is wrong, of each kind at most ``SHOWN_MAX``, and how many more there are.

    Args:
        stored: all messages of the topic in the log of a member, after the end of the history.
    """
    found: list[str] = []
    for rule in (lost, doubled, invented, moved, out_of_order, misread, unread_again):
        broken = list(rule(history, stored))
        found += [f"{rule.__name__}: {one}" for one in broken[:SHOWN_MAX]]
        if len(broken) > SHOWN_MAX:
            found.append(f"{rule.__name__}: and {len(broken) - SHOWN_MAX} more")
    return found


def lost(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """What was acknowledged stands where the acknowledgement said (I13)."""
    at = {(one.queue, one.offset): one.value for one in stored}
    for one in history.appends.values():
        if one.outcome is Outcome.ACKED:
            for value, offset in zip(one.values, one.offsets, strict=True):
                if at.get((one.queue, offset)) != value:
                    there = at.get((one.queue, offset), "nothing")
                    yield (
                        f"{value} was acknowledged at queue offset {offset} of queue {one.queue},"
                        f" where there is {there} ({one})"
                    )


def doubled(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """No value and no unique id is stored twice (I14); no offset is acknowledged to two (I16)."""
    values: dict[str, Stored] = {}
    ids: dict[str, Stored] = {}
    for one in stored:
        for known, key in ((values, one.value), (ids, one.unique_id)):
            if key in known:
                yield f"{key} is stored twice: {known[key]}, {one}"
            known[key] = one
    owners: dict[tuple[int, int], str] = {}
    for append in history.appends.values():
        for value, offset in zip(append.values, append.offsets, strict=False):
            other = owners.setdefault((append.queue, offset), value)
            if other != value:
                yield f"{other} and {value} were both acknowledged at {append.queue}:{offset}"


def invented(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """Nothing is stored that was never sent, or of which was said that it is not stored (I14)."""
    sent = {value: one for one in history.appends.values() for value in one.values}
    for one in stored:
        append = sent.get(one.value)
        if append is None or append.queue != one.queue:
            yield f"{one} was never sent there"
        elif append.outcome is Outcome.REFUSED:
            yield f"{one} is stored, and was refused ({append})"


def moved(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """Queue offsets count the messages of a queue in the order of the log (I15, I16)."""
    del history
    counts: defaultdict[int, int] = defaultdict(int)
    for one in stored:
        if one.offset != counts[one.queue]:
            yield f"{one} is number {counts[one.queue]} of its queue in the log"
        counts[one.queue] += 1


def out_of_order(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """Messages stand in the order in which each producer sent them, and in that of time (I15)."""
    sent: dict[str, tuple[Append, int]] = {
        value: (one, row)
        for one in history.appends.values()
        for row, value in enumerate(one.values)
    }
    last: dict[tuple[int, str], tuple[int, int, str]] = {}
    begun: dict[int, tuple[int, str]] = {}
    for one in stored:
        if one.value not in sent:
            continue
        append, row = sent[one.value]
        place = append.number, row, one.value
        before = last.get((one.queue, append.process))
        if before is not None and before[:2] > place[:2]:
            yield f"{one} stands behind {before[2]}, which its producer sent later"
        last[one.queue, append.process] = place
        latest = begun.get(one.queue, (0, ""))
        if append.outcome is Outcome.ACKED and append.end_ns < latest[0]:
            yield f"{one} was acknowledged before {latest[1]} was sent, and stands behind it"
        begun[one.queue] = max(latest, (append.start_ns, one.value))


def misread(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """Whatever a consumer was given is in the log where it was given, up to its end (I13)."""
    at = {(one.queue, one.offset): one.value for one in stored}
    for read in history.reads:
        for offset, value in enumerate(read.values, read.first):
            if at.get((read.queue, offset)) != value:
                there = at.get((read.queue, offset), "nothing")
                yield (
                    f"{read.process} was given {value} at {read.queue}:{offset},"
                    f" where there is {there}"
                )
        behind = read.queue, read.first + len(read.values)
        if read.is_end and behind in at:
            yield f"{read.process} was told that a queue ends at {behind}, where {at[behind]} is"


def unread_again(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """A consumer that was given a message never finds the queue ending before it."""
    del stored
    key = attrgetter("process", "queue")
    for (process, queue), reads in groupby(sorted(history.reads, key=key), key):
        reached = 0
        for read in sorted(reads, key=attrgetter("start_ns")):
            behind = read.first + len(read.values)
            if not read.values and behind < reached:
                yield (
                    f"{process} had read queue {queue} up to {reached}, and was then told that it"
                    f" ends at {behind}"
                )
            reached = max(reached, behind)
