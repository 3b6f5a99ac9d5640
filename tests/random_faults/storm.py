"""Faults one after the other and beside one another, drawn from a seed, each with its times."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.random_faults.bed import Bed
from tests.random_faults.fault_kinds import KINDS, Kind, NotNowError, Scene

TURN_S = 0.1
GAP_MEAN_S = 7.0
TOGETHER_MAX = 3
QUIET_EVERY_S, QUIET_S = 90.0, 12.0
"""Now and then all is well for a while, so that clients come to what they do then."""


class Storm:
    """What is being done to a group.

    Attributes:
        counts: faults that have happened, by kind.
    """

    def __init__(self, bed: Bed, seed: int, log: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._bed = bed
        self._chance = random.Random(f"{seed} storm")
        self._scene = Scene(bed, self._chance)
        self._log = log
        self._began = time.monotonic()
        self._current: list[tuple[float, str, ExitStack]] = []

    def rage(self, seconds: float, check: Callable[[], None]) -> None:
        """Let faults happen for so long; all have ended on return.

        Args:
            check: is called again and again; what it raises ends the storm.
        """
        began = time.monotonic()
        next_at, quiet_at = began, began + QUIET_EVERY_S
        try:
            while (now := time.monotonic()) < began + seconds:
                check()
                self._bed.keep_up()
                self._end_due(now)
                if now >= quiet_at:
                    self._end_due(float("inf"))
                    next_at, quiet_at = now + QUIET_S, now + QUIET_S + QUIET_EVERY_S
                elif now >= next_at and len(self._current) < TOGETHER_MAX:
                    self._begin_one()
                    next_at = now + self._chance.expovariate(1 / GAP_MEAN_S)
                time.sleep(TURN_S)
        finally:
            self._end_due(float("inf"))

    def note(self, what: str, **more: object) -> None:
        """A line of the log of the run."""
        at = round(time.monotonic() - self._began, 2)
        with self._log.open("a") as file:
            file.write(json.dumps({"at_s": at, "what": what, **more}) + "\n")

    def _begin_one(self) -> None:
        kind: Kind = self._chance.choices(KINDS, [one.weight for one in KINDS])[0]
        lasting_s = self._chance.uniform(0, kind.lasting_s)
        stack = ExitStack()
        try:
            told = stack.enter_context(kind.fault(self._scene))
        except NotNowError:
            return
        self.counts[kind.name] += 1
        self.note(kind.name, told=told, lasting_s=round(lasting_s, 2), ns=time.monotonic_ns())
        self._current.append((time.monotonic() + lasting_s, kind.name, stack))

    def _end_due(self, now: float) -> None:
        for one in [one for one in self._current if one[0] <= now]:
            self._current.remove(one)
            self.note(f"end of {one[1]}")
            one[2].close()
