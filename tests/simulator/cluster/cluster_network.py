"""Network between the groups of a simulated cluster, and the time of all: delays, losses, cuts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from tests.simulator.machine.events import MS, Events

Question = TypeVar("Question")
Send = Callable[[Callable[[], None]], None]


class ClusterNetwork(Generic[Question]):
    """What is sent arrives once, after a while, or never.

    Attributes:
        listeners: who takes questions, by address.
        cut: groups on the one side of a partition; who is on one side reaches nobody on the other.
        loss: of this many messages in a thousand each is lost.
    """

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.events = Events()
        self.listeners: dict[str, Callable[[Question], None]] = {}
        self.cut: set[str] = set()
        self.loss = 0

    @property
    def now_ms(self) -> int:
        """The simulator's time."""
        return self.events.now // MS

    def after(self, wait_ms: int, happen: Callable[[], None]) -> None:
        """``happen`` is called when that time has passed."""
        self.events.after(wait_ms * MS, happen)

    def sender(self, source: str, target: str) -> Send:
        """Sends from one group to another one."""

        def send(arrive: Callable[[], None]) -> None:
            if self.chance.randrange(1_000) >= self.loss and self._reach(source, target):
                self.after(self.chance.randint(1, 80), receive(arrive))

        def receive(arrive: Callable[[], None]) -> Callable[[], None]:
            return lambda: arrive() if self._reach(source, target) else None

        return send

    def _reach(self, source: str, target: str) -> bool:
        return (source in self.cut) == (target in self.cut)
