"""Tests that are marked as long, ``pytest.mark.long``: they take ``LONG_S`` seconds and more.

``make test`` leaves them out, so that it is over in some minutes; ``make test-long`` runs them, all
or those that are over within a budget, ``.ci/run`` does both, and ``make check-all`` runs all. Who
names one (``FILE::TEST``) has it run.

``pytest.mark.long(but=1)`` is for a test with many cases: its first case is not long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.suite.durations import Durations, function_of

LONG_S = 6.0
UNKNOWN_LONG_S = 60.0
"""For how long one is taken that has never been measured: it is one that check-all alone runs."""


def is_long(item: pytest.Item) -> bool:
    """Whether it is marked so."""
    return item.get_closest_marker("long") is not None


def excuse_first_cases(items: Sequence[pytest.Item]) -> None:
    """Take the mark from the cases that ``but`` excepts."""
    cases: Counter[tuple[str, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("long")
        if mark is None or "but" not in mark.kwargs:
            continue
        function = function_of(item.nodeid)
        cases[function] += 1
        if cases[function] <= mark.kwargs["but"]:
            item.own_markers[:] = [one for one in item.own_markers if one.name != "long"]


def leave_out(items: Sequence[pytest.Item], asked: Sequence[str]) -> None:
    """Skip them, but for those that somebody has named."""
    mark = pytest.mark.skip(reason="long: make test-long, make check-all, or LEDGERMQ_LONG=1")
    named = [word.rpartition("/")[2] for word in asked]
    for item in items:
        if is_long(item) and not any(name in item.nodeid for name in named):
            item.add_marker(mark)


def fit(items: Sequence[pytest.Item], durations: Durations, budget_s: float) -> None:
    """Skip of the long ones what is not over in time: the shortest are run, so that it is many."""
    if budget_s == float("inf"):
        return
    seconds = {
        function_of(item.nodeid): durations.known(item.nodeid) or UNKNOWN_LONG_S
        for item in items
        if is_long(item)
    }
    left_s, fitting = budget_s, set()
    for function, taken_s in sorted(seconds.items(), key=lambda one: (one[1], one[0])):
        left_s -= taken_s
        if left_s >= 0:
            fitting.add(function)
    mark = pytest.mark.skip(reason="long, and beyond the time that there is: make check-all")
    for item in items:
        if is_long(item) and function_of(item.nodeid) not in fitting:
            item.add_marker(mark)
