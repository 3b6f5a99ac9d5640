"""Runs of many seeds: what those say that fail, and a seed in which a deliberate bug is found."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

from tests.simulator.runs.runs import Outcome

TOLD_MAX, LINES_TOLD = 3, 80


def find(fails: Callable[[int], object], *, likely: int, count: int) -> int | None:
    """The first seed of ``count`` that fails; the one that did last is looked at before them.

    Seeds become other runs whenever the program does something else: if ``likely`` does not fail
    any more a warning says which one does, for a search costs as much as all other runs together.
    """
    if fails(likely):
        return likely
    found = next((seed for seed in range(count) if seed != likely and fails(seed)), None)
    if found is not None:
        warnings.warn(f"seed {likely} finds it no more, {found} does: LIKELY", stacklevel=2)
    return found


def failures(seeds: Iterable[int], run: Callable[[int], Outcome]) -> str:
    """What the first ones say that fail; empty where none does."""
    told = []
    for seed in seeds:
        outcome = run(seed)
        if outcome.failure:
            last = outcome.history[-LINES_TOLD:]
            told.append("\n".join([f"seed {seed}: {outcome.failure}", *last]))
    return "\n\n".join(told[:TOLD_MAX])
