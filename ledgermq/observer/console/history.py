"""History: the last hour of a node's rates and of some groups' lags, in rings of fixed size."""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.ipc.counters import BrokerCounter, WriterCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.time_histogram import TimeKind, Times, read_times
from ledgermq.process.node_status import given_out

SAMPLE_S = 10
SAMPLES = 360
"""An hour of them."""

WATCHED_MAX = 64
"""Groups whose lag is followed: those that were looked at last."""

FORGOTTEN_S = SAMPLES * SAMPLE_S
"""A group that nobody has looked at for so long is not followed any more."""

CURVES = (
    "messages_in", "bytes_in", "messages_out", "bytes_out", "not_committed_bytes",
    "not_dispatched_bytes", "sync_ms", "refused",
)  # fmt: skip
"""Rates a second, but for bytes that wait, and the middle of the times of syncs."""


class Ring:
    """Samples of several values, each with its time; a new one takes the place of the oldest."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._values = array("d", bytes(8 * SAMPLES * (width + 1)))
        self._count = 0

    def put(self, time_s: float, values: Sequence[float]) -> None:
        """Keep a sample; ``time_s`` is that of the epoch."""
        assert len(values) == self._width, values
        at = self._count % SAMPLES * (self._width + 1)
        self._values[at : at + self._width + 1] = array("d", (time_s, *values))
        self._count += 1

    def columns(self) -> list[list[float]]:
        """Times, and each value's course, the oldest first."""
        step = self._width + 1
        first = max(0, self._count - SAMPLES)
        order = [number % SAMPLES * step for number in range(first, self._count)]
        return [[self._values[at + column] for at in order] for column in range(step)]


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
        self._ring = Ring(len(CURVES))
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
            _since(before.syncs, counted.syncs).quantile_ns(0.5) / 1e6,
            max(0, counted.refused - before.refused) / age_s,
        )
        self._ring.put(time.time(), values)

    def curves(self) -> dict[str, list[float]]:
        """The courses of ``CURVES`` by name, and their times under ``time``."""
        return dict(zip(("time", *CURVES), self._ring.columns(), strict=True))

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


class LagHistory:
    """Lags of those groups whose page somebody has looked at within the last hour."""

    def __init__(self) -> None:
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        self._looked_s: dict[str, float] = {}
        self._sampled_s = 0.0

    def watch(self, group: str) -> None:
        """Somebody looks at ``group``: its lag is followed for an hour from now."""
        self._looked_s[group] = time.monotonic()
        self._rings.setdefault(group, Ring(1))
        self._rings.move_to_end(group)
        while len(self._rings) > WATCHED_MAX:
            self._forget(next(iter(self._rings)))

    def due(self) -> tuple[str, ...]:
        """The groups to be sampled now; none while it is not time for that, or nobody looks."""
        now_s = time.monotonic()
        if not self._rings or now_s - self._sampled_s < SAMPLE_S:
            return ()
        self._sampled_s = now_s
        for group in [one for one, at in self._looked_s.items() if now_s - at > FORGOTTEN_S]:
            self._forget(group)
        return tuple(self._rings)

    def put(self, group: str, messages: int) -> None:
        """Keep what a group lacks now."""
        if group in self._rings:
            self._rings[group].put(time.time(), (messages,))

    def curve(self, group: str) -> dict[str, list[float]]:
        """The course of a group's lag, and its times."""
        ring = self._rings.get(group)
        times, messages = ring.columns() if ring is not None else ([], [])
        return {"time": times, "lag": messages}

    def _forget(self, group: str) -> None:
        del self._rings[group], self._looked_s[group]


def _since(before: Times, now: Times) -> Times:
    counts = tuple(max(0, one - two) for one, two in zip(now.counts, before.counts, strict=True))
    return Times(counts, max(0, now.sum_ns - before.sum_ns))
