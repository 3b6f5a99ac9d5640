"""History: the last hour of a node, its topics and its groups, in rings of fixed size."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ledgermq.ipc.counters import BrokerCounter, WriterCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.time_histogram import TimeKind, Times, read_times
from ledgermq.observer.metrics.lag_survey import Counted
from ledgermq.process.node_status import given_out

SAMPLE_S = 10
SAMPLES = 360
"""An hour of them."""

KEPT_MAX = 2_000
"""Topics that are kept, and groups: 3 KiB for each topic's hour, 6 KiB for each group's."""

RATE_SAMPLES = 6
"""A rate now is that of the last minute."""

SPARK_POINTS = 60

CURVES = (
    "messages_in", "bytes_in", "messages_out", "bytes_out", "not_committed_bytes",
    "not_dispatched_bytes", "sync_ms", "refused",
)  # fmt: skip
"""Rates a second, but for bytes that wait, and the mean of the times of syncs."""


class Courses:
    """Courses of some values of many things, all taken at the same moments; a new sample takes the
    place of the oldest.

    Invariant: at most ``most`` things; one that has no value any more is forgotten.
    """

    def __init__(self, width: int, most: int = 1) -> None:
        self._width = width
        self._most = most
        self._times = array("d", bytes(8 * SAMPLES))
        self._values: dict[str, array[float]] = {}
        self._count = 0

    def put(self, now_s: float, values: Mapping[str, Sequence[float]]) -> None:
        """Keep a sample of each thing; ``now_s`` is of the monotonic clock."""
        at = self._count % SAMPLES
        self._times[at] = now_s
        for gone in self._values.keys() - values.keys():
            del self._values[gone]
        for name, sample in values.items():
            assert len(sample) == self._width, sample
            kept = self._values.get(name)
            if kept is None:
                if len(self._values) >= self._most:
                    continue
                kept = self._values[name] = array("d", [math.nan]) * (SAMPLES * self._width)
            kept[at * self._width : (at + 1) * self._width] = array("d", sample)
        self._count += 1

    def columns(self, name: str = "") -> list[list[float]]:
        """Times of the epoch in seconds, and the course of each value, the oldest first."""
        kept = self._values.get(name)
        if kept is None:
            return [[] for _ in range(self._width + 1)]
        epoch_s = time.time() - time.monotonic()
        first = max(0, self._count - SAMPLES)
        order = [number % SAMPLES for number in range(first, self._count)]
        order = [at for at in order if not math.isnan(kept[at * self._width])]
        times = [epoch_s + self._times[at] for at in order]
        courses = ([kept[at * self._width + one] for at in order] for one in range(self._width))
        return [times, *courses]

    def rate(self, name: str, value: int = 0) -> float | None:
        """By how much a sum has grown a second within the last minute; None: it is not known."""
        kept, last = self._values.get(name), self._count - 1
        if kept is None:
            return None
        at = last % SAMPLES
        for back in range(min(RATE_SAMPLES, last), 0, -1):
            first = (last - back) % SAMPLES
            before = kept[first * self._width + value]
            if not math.isnan(before):
                grown = kept[at * self._width + value] - before
                return max(0.0, grown) / (self._times[at] - self._times[first])
        return None

    def rates(self, name: str, value: int = 0) -> list[float]:
        """The same from each sample to the next one; as many as there are times but the first."""
        times, *courses = self.columns(name)
        course = courses[value]
        return [
            max(0.0, course[at] - course[at - 1]) / (times[at] - times[at - 1])
            for at in range(1, len(times))
        ]


def spark_of(course: Sequence[float]) -> list[float]:
    """The course of an hour, or its beginning, in few points: of each stretch of time the most."""
    step = SAMPLES // SPARK_POINTS
    return [max(course[at : at + step]) for at in range(0, len(course), step)]


class Kept:
    """Courses of topics and groups since the observer began, whether anybody looks or not.

    Attributes:
        topics: messages ever stored.
        groups: messages that wait, and the sum of offsets.
        since_ms: when the first sample was taken, epoch ms; None: none was.
    """

    def __init__(self) -> None:
        self.topics = Courses(1, KEPT_MAX)
        self.groups = Courses(2, KEPT_MAX)
        self.since_ms: int | None = None

    def put(self, counted: Counted) -> None:
        """Keep a sample."""
        now_s = time.monotonic()
        self.topics.put(now_s, {name: (count,) for name, count in counted.topics.items()})
        self.groups.put(now_s, counted.groups)
        if self.since_ms is None:
            self.since_ms = time.time_ns() // 1_000_000


class _Counted(NamedTuple):
    """Counters at one moment."""

    now_s: float
    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    refused: int
    syncs: Times


class History:
    """What the observer's loop keeps with its wake-ups; nothing is asked for it of anybody."""

    def __init__(self, page: CursorPage) -> None:
        self._page = page
        self._courses = Courses(len(CURVES))
        self._before: _Counted | None = None

    def look(self) -> None:
        """Take a sample, if it is time for one."""
        now_s = time.monotonic()
        before = self._before
        if before is not None and now_s - before.now_s < SAMPLE_S:
            return
        self._before = counted = self._count(now_s)
        if before is None:
            return
        age_s = now_s - before.now_s
        committed = self._page.read_committed().position
        values = (
            max(0, counted.messages_in - before.messages_in) / age_s,
            max(0, counted.bytes_in - before.bytes_in) / age_s,
            max(0, counted.messages_out - before.messages_out) / age_s,
            max(0, counted.bytes_out - before.bytes_out) / age_s,
            max(0, self._page.read_written().position - committed),
            max(0, committed - self._page.read_dispatched().position),
            _mean_ns(_since(before.syncs, counted.syncs)) / 1e6,
            max(0, counted.refused - before.refused) / age_s,
        )
        self._courses.put(now_s, {"": values})

    def curves(self) -> dict[str, list[float]]:
        """The courses of ``CURVES`` by name, and their times under ``time``."""
        return dict(zip(("time", *CURVES), self._courses.columns(), strict=True))

    def now(self) -> dict[str, float]:
        """The last value of each of ``CURVES``; empty before there is one."""
        return {name: course[-1] for name, course in self.curves().items() if course}

    def _count(self, now_s: float) -> _Counted:
        page = self._page
        writer = page.read_counters(Role.WRITER)
        return _Counted(
            now_s,
            writer[WriterCounter.MESSAGES],
            writer[WriterCounter.BYTES],
            given_out(page, BrokerCounter.MESSAGES),
            given_out(page, BrokerCounter.BYTES),
            writer[WriterCounter.REFUSED] + given_out(page, BrokerCounter.REFUSED),
            read_times(page, TimeKind.SYNC),
        )


def _since(before: Times, now: Times) -> Times:
    counts = tuple(max(0, one - two) for one, two in zip(now.counts, before.counts, strict=True))
    return Times(counts, max(0, now.sum_ns - before.sum_ns))


def _mean_ns(times: Times) -> float:
    """Their mean; the buckets of a histogram are bounds, each twice the one before."""
    return times.sum_ns / times.total if times.total else 0.0
