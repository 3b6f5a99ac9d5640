"""Reports to raft of damaged places that were met while reading for consumers."""

from __future__ import annotations

from ledgermq.ipc.orders import Damaged, encode
from ledgermq.model.ids import Position
from ledgermq.process.clock import Clock
from ledgermq.process.environment import OrderBell

REPEAT_NS = 1_000_000_000
"""A damaged place is reported again after this long, if it is still asked for."""

TOLD_MAX = 1_024


class DamageReports:
    """Called with the position of a damaged record, as often as somebody asks for that."""

    def __init__(self, raft: OrderBell, clock: Clock) -> None:
        self._raft = raft
        self._clock = clock
        self._told_ns: dict[int, int] = {}

    def __call__(self, position: int) -> None:
        """Have raft look at the log at ``position``; consumers ask again and again."""
        now_ns = self._clock.monotonic_ns()
        told_ns = self._told_ns.get(position)
        if told_ns is not None and now_ns - told_ns < REPEAT_NS:
            return
        if len(self._told_ns) >= TOLD_MAX:
            self._told_ns.clear()
        self._told_ns[position] = now_ns
        self._raft.send(encode(Damaged(Position(position))))
