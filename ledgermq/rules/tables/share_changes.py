"""Changes of share groups in a command: what was handed out, and what is settled.

    {"shared": "TOPIC@GROUP", "at": MS, "low": {ID: N},
     "runs": {ID: [[GAP, COUNT, MS, DELIVERY, MARK], ...]}, "settled": {ID: [GAP, COUNT, ...]},
     "by": OWNER}
    {"unshared": "TOPIC@GROUP"}             the group consumes the topic queue by queue again

A gap is counted from the end of what stands before it in its list, from 0 at the begin. ``MS`` of a
run is counted from ``at``; the last two are left out where they are 1 and 0, or 0 alone. -1: it
waits for another message to be settled.
``"behind": true``: what is settled so has its record before this command in the log. ``"by"``:
whose room the group takes from now on; it is left out where that is whose it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ledgermq.model.errors import CorruptLogError
from ledgermq.verbs.verb import NUMBER_MAX

RUNS_MAX = 10_000_000
"""Runs of one list: more than any settings let groups take are a damaged command."""

MARK_MAX = 2**32 - 1
OWNER_SIZE_MAX = 1_000

WAITS = NUMBER_MAX
"""``until`` of what no time makes visible: a message of the same key is to be settled before."""

_WAITS_AS = -1

Fields = Mapping[str, object]


class OffsetSpan(NamedTuple):
    """Consecutive queue offsets, the first and how many."""

    first: int
    length: int

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.first + self.length


class Run(NamedTuple):
    """Consecutive messages that are not settled, and stand alike.

    Attributes:
        first, length: queue offsets.
        until: they are invisible before, epoch ms; ``WAITS``: until others are settled.
        delivery: how often they were handed out.
        mark: drawn when they were handed out for the last time; 0: they are with nobody.
    """

    first: int
    length: int
    until: int
    delivery: int
    mark: int

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.first + self.length

    def follows(self, before: Run) -> bool:
        """Whether it goes on where ``before`` ends, and stands like that."""
        return self.first == before.end and self[2:] == before[2:]


class ShareChanged(NamedTuple):
    """What was handed out and settled of a topic for a group, by queue.

    Attributes:
        lows: of each queue that is changed: all below is settled; so is the group's offset.
        runs: they are so from now on.
        settled: nobody is given them any more.
        is_behind: dead letters of it stand before the command.
        taken_by: a user, a host or an account that has taken of the group; empty: one for whom no
            bound holds; None: it is who it was.
    """

    group: str
    topic: str
    lows: Mapping[int, int]
    runs: Mapping[int, tuple[Run, ...]]
    settled: Mapping[int, tuple[OffsetSpan, ...]]
    is_behind: bool = False
    taken_by: str | None = None

    def to_fields(self) -> Fields:
        """The fields of the command."""
        times = (run.until for runs in self.runs.values() for run in runs if run.until != WAITS)
        at_ms = min(times, default=0)
        fields: dict[str, object] = {"shared": f"{self.topic}@{self.group}", "at": at_ms}
        fields["low"] = self.lows
        if self.runs:
            fields["runs"] = {queue: _encode_runs(of, at_ms) for queue, of in self.runs.items()}
        if self.settled:
            fields["settled"] = {queue: _encode_spans(of) for queue, of in self.settled.items()}
        if self.is_behind:
            fields["behind"] = True
        if self.taken_by is not None:
            fields["by"] = self.taken_by
        return fields


class ShareEnded(NamedTuple):
    """The group takes no messages of the topic singly any more; its offsets stay."""

    group: str
    topic: str

    def to_fields(self) -> Fields:
        """The fields of the command."""
        return {"unshared": f"{self.topic}@{self.group}"}


ShareChange = ShareChanged | ShareEnded


def decode_share_change(fields: Fields) -> ShareChange | None:
    """The change in a command's ``fields``; None when it is of another kind.

    Raises:
        CorruptLogError: it is not what it should be.
    """
    if isinstance(ended := fields.get("unshared"), str):
        return ShareEnded(*_owner(ended))
    if not isinstance(owner := fields.get("shared"), str):
        return None
    at_ms = _number(fields.get("at"), owner)
    lows = {queue: _number(low, owner) for queue, low in _by_queue(fields.get("low"), owner)}
    runs = {
        queue: tuple(_decode_runs(of, at_ms, owner))
        for queue, of in _by_queue(fields.get("runs", {}), owner)
    }
    settled = {
        queue: tuple(_decode_spans(of, owner))
        for queue, of in _by_queue(fields.get("settled", {}), owner)
    }
    if not (runs.keys() | settled.keys()) <= lows.keys():
        raise _corrupt(owner, sorted(lows))
    taken_by = fields.get("by")
    if taken_by is not None:
        taken_by = read_owner(taken_by, owner)
    return ShareChanged(*_owner(owner), lows, runs, settled, fields.get("behind") is True, taken_by)


def read_owner(value: object, of: str) -> str:
    """Whose room a group takes, as a table and a command have it.

    Raises:
        CorruptLogError: it is nobody.
    """
    if not isinstance(value, str) or len(value) > OWNER_SIZE_MAX:
        raise _corrupt(of, value)
    return value


def read_runs(value: object, owner: str) -> Iterator[Run]:
    """Runs as a table has them: with their times, else as in a command.

    Raises:
        CorruptLogError: they are none.
    """
    return _decode_runs(value, 0, owner)


def write_runs(runs: Iterable[Run]) -> list[list[int]]:
    """Runs as ``read_runs`` reads them."""
    return _encode_runs(runs, 0)


def _encode_runs(runs: Iterable[Run], at_ms: int) -> list[list[int]]:
    rows: list[list[int]] = []
    end = 0
    for run in runs:
        later = _WAITS_AS if run.until == WAITS else run.until - at_ms
        row = [run.first - end, run.length, later, run.delivery, run.mark]
        if run.mark == 0:
            row.pop()
            if run.delivery == 1:
                row.pop()
        rows.append(row)
        end = run.end
    return rows


def _decode_runs(value: object, at_ms: int, owner: str) -> Iterator[Run]:
    if not isinstance(value, list) or len(value) > RUNS_MAX:
        raise _corrupt(owner, value)
    end = 0
    for row in value:
        if not isinstance(row, list) or not 3 <= len(row) <= 5:
            raise _corrupt(owner, row)
        gap, count, later = row[:3]
        delivery = row[3] if len(row) > 3 else 1
        mark = row[4] if len(row) > 4 else 0
        until = WAITS if later == _WAITS_AS else at_ms + _number(later, owner)
        for number in (count, delivery, mark):
            _number(number, owner)
        if type(gap) is not int or end + gap < 0 or count < 1 or mark > MARK_MAX:
            raise _corrupt(owner, row)
        run = Run(end + gap, count, until, delivery, mark)
        if run.end > NUMBER_MAX or run.until > NUMBER_MAX:
            raise _corrupt(owner, row)
        yield run
        end = run.end


def _encode_spans(spans: Iterable[OffsetSpan]) -> list[int]:
    flat: list[int] = []
    end = 0
    for span in spans:
        flat += (span.first - end, span.length)
        end = span.end
    return flat


def _decode_spans(value: object, owner: str) -> Iterator[OffsetSpan]:
    if not isinstance(value, list) or len(value) % 2 or len(value) > 2 * RUNS_MAX:
        raise _corrupt(owner, value)
    end = 0
    for at in range(0, len(value), 2):
        gap, count = value[at], value[at + 1]
        if type(gap) is not int or type(count) is not int or end + gap < 0 or count < 1:
            raise _corrupt(owner, [gap, count])
        span = OffsetSpan(end + gap, count)
        if span.end > NUMBER_MAX:
            raise _corrupt(owner, [gap, count])
        yield span
        end = span.end


def _by_queue(value: object, owner: str) -> Iterator[tuple[int, object]]:
    if not isinstance(value, Mapping):
        raise _corrupt(owner, value)
    for queue, of in value.items():
        if not str(queue).isdecimal():
            raise _corrupt(owner, queue)
        yield int(queue), of


def _owner(owner: str) -> tuple[str, str]:
    """Group and topic."""
    topic, at, group = owner.partition("@")
    if not (topic and at and group):
        raise _corrupt(owner, owner)
    return group, topic


def _number(value: object, owner: str) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise _corrupt(owner, value)
    return value


def _corrupt(owner: str, found: object) -> CorruptLogError:
    return CorruptLogError(
        "not what a share group has taken", owner=owner[:600], found=str(found)[:200]
    )
