"""Runs whose clients are cut off, and repeat what they sent when others have written much since."""

from __future__ import annotations

from dataclasses import replace

from ledgermq.sim.machine.events import MS
from ledgermq.sim.runs.runs import FaultRun, Verbs
from ledgermq.sim.world import Shape, World

WINDOW = 8_192
"""More than a frame, and less than producers write while one of them is away."""

PRODUCERS = 6
AWAY_MS = (50, 300, 1_200)


class RepeatRun(FaultRun):
    """Writers look at less of the log than is written while a client is away; there is no index.

    So what is not found is refused as unknown, unless the client knows that it was sent later.
    """

    def _world(self, seed: int, shape: Shape) -> World:
        return World(seed, replace(shape, window=WINDOW, producers=PRODUCERS))

    def _verbs(self) -> Verbs:
        return (*super()._verbs(), (self._cut_off, 12))

    def _cut_off(self) -> None:
        producer = self.random.choice(self.world.producers)
        producer.cut_off(self.random.choice(AWAY_MS) * MS)
