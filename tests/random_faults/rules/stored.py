"""What a member's log has in the end, and how rules look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.random_faults.records import Operation, Records


class Stored(NamedTuple):
    """A message as a log has it; lists of them are in the order of the log."""

    topic: str
    queue: int
    offset: int
    value: str
    unique_id: str
    position: int
    store_ms: int


Rule = Callable[[Records, Sequence[Stored]], Iterator[str]]


def sends(records: Records, *topics: str) -> Iterator[Operation]:
    """Sends to these topics; to all without one."""
    for one in records.all("send"):
        if not topics or one.asked["topic"] in topics:
            yield one


def of_topics(stored: Iterable[Stored], *topics: str) -> Iterator[Stored]:
    """Messages of these topics."""
    return (one for one in stored if one.topic in topics)


def counted(found: Iterable[Stored]) -> dict[tuple[str, str], list[Stored]]:
    """Messages by topic and value."""
    by_value: dict[tuple[str, str], list[Stored]] = {}
    for one in found:
        by_value.setdefault((one.topic, one.value), []).append(one)
    return by_value
