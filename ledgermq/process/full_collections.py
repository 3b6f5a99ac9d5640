"""Garbage collection of long-lived tables: frozen, so that full collections pass over them.

A full collection looks at every object that can be part of a cycle: with some ten thousand topics
and offsets that is 50 ms, twice a second while much is asked, and it finds nothing: tables have no
cycles. So what has survived one is left out of the next (``gc.freeze``). What becomes garbage there
in a cycle is found when much is left out, and twice as much as when everything was looked at last.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

FULL = 2
"""The oldest generation."""

GROWN_FACTOR = 2

LEFT_OUT_MIN = 250_000
"""Fewest objects that are left out of full collections: 40 MB, a sixth of a second to look at. A
process with all modules has 60,000, and 10,000 topics with their offsets are as many again."""

PER_FULL = 2
"""A full collection for so many of the generation below, instead of ten: each looks at what is new
since the last one, so that the sum stays the same, and each is a fifth of the pause."""

COUNTED_EACH = 16
"""Collections of which one counts what is left out: to count it is to walk through it."""


class FullCollections:
    """One for a process, which is told of all collections once it is installed.

    Invariant: ``_whole`` is how many objects were left when everything was looked at; before that,
    how many were left out at first.
    """

    def __init__(self) -> None:
        self._whole = gc.get_freeze_count()
        self._until_counted = COUNTED_EACH
        self._is_everything = False

    def install(self) -> None:
        """Leave out what survives a full collection, from now on."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, PER_FULL)
        gc.callbacks.append(self._take)

    def _take(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] != FULL:
            return
        if self._is_everything:
            gc.freeze()
            self._whole, self._is_everything = gc.get_freeze_count(), False
            return
        gc.freeze()
        self._until_counted -= 1
        if self._until_counted == 0:
            self._until_counted = COUNTED_EACH
            if gc.get_freeze_count() > max(GROWN_FACTOR * self._whole, LEFT_OUT_MIN):
                # The next one looks at everything.
                gc.unfreeze()
                self._is_everything = True
