"""Strangers: connections over which nothing was asked yet; who came first gives way first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable


class Strangers:
    """Those of one listener, of all shares and of each.

    Who connects and says nothing keeps a place that costs nothing to take. Where all are taken, one
    of these makes room, so that nobody is kept out by silence.
    """

    def __init__(self) -> None:
        self._all: OrderedDict[Hashable, tuple[str, Callable[[], object]]] = OrderedDict()
        self._of_share: dict[str, OrderedDict[Hashable, None]] = {}

    def add(self, share: str, one: Hashable, end: Callable[[], object]) -> None:
        """``one`` has connected, and takes of ``share``; ``end`` is called where it gives way."""
        self._all[one] = share, end
        self._of_share.setdefault(share, OrderedDict())[one] = None

    def discard(self, one: Hashable) -> None:
        """It has asked for something, or has gone; nothing is done when it is no stranger."""
        share, _ = self._all.pop(one, ("", None))
        mine = self._of_share.get(share)
        if mine is not None:
            mine.pop(one, None)
            if not mine:
                del self._of_share[share]

    def give_way(self, share: str | None = None) -> bool:
        """End who came first, of a share or of all; whether there was one."""
        among = self._all if share is None else self._of_share.get(share)
        if not among:
            return False
        first = next(iter(among))
        _, end = self._all[first]
        self.discard(first)
        end()
        return True
