"""Which worker of pytest-xdist runs which tests, and when: what takes longest begins first.

What is handed to a worker is a *unit*: the files of a folder whose tests share something that is
dear (Spark's JVM, a booted machine), else a file, else, of a file that takes long and shares
nothing between its tests, each test.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.suite.durations import Durations

FOLDERS = {"tests/spark/": "spark: SparkSession", "tests/boot/": ""}
"""Tests of Spark go to the worker that has the JVM, those that boot to the one that has the machine
with the package. A file without a test that asks for what is shared (its text) is one like others.
"""

DIVIDED_FROM_S = 10.0

UNKNOWN_SLOW_S = 2.0
"""What a test takes in the middle of a file that says ``slow``: for files that nobody has measured
yet, which would else begin last, one after the other.
"""


class Units:
    """The unit of each test, and how long that will take."""

    def __init__(self, durations: Durations, root: Path) -> None:
        self._durations = durations
        self._root = root
        self._of_file = cache(self._measured_or_told)
        self._is_divided = cache(self._look_whether_divided)
        self._folder = cache(self._find_folder)

    def unit(self, nodeid: str) -> str:
        """The name of the unit: a folder with a slash at its end, a file, or the test itself."""
        file = nodeid.partition("::")[0]
        return self._folder(file) or (nodeid if self._is_divided(file) else file)

    def seconds(self, unit: str) -> float:
        """How long it took when that was measured; cases of one test are taken for the same."""
        if unit.endswith("/"):
            files = self._durations.files(unit)
            return sum(self._durations.of_file(file) for file in files if self._folder(file))
        if "::" in unit:
            is_known = self._durations.of_file(unit.partition("::")[0])
            return self._durations.of_function(unit) if is_known else UNKNOWN_SLOW_S
        return self._of_file(unit)

    def _measured_or_told(self, file: str) -> float:
        """Seconds that the file took; of one that was never measured, by what it says of itself."""
        path = self._root / file
        if (known := self._durations.of_file(file)) or not path.exists():
            return known
        text = path.read_text()
        return UNKNOWN_SLOW_S * text.count("\ndef test_") if "pytest.mark.slow" in text else 0.0

    def _find_folder(self, file: str) -> str:
        """The folder with which the file shares something; none if it does not."""
        folder = next((name for name in FOLDERS if file.startswith(name)), "")
        path = self._root / file
        is_sharing = folder and (not path.exists() or FOLDERS[folder] in path.read_text())
        return folder if is_sharing else ""

    def _look_whether_divided(self, file: str) -> bool:
        """Whether it takes long, and nothing of it is made, or read, once for all of its tests."""
        if self._of_file(file) < DIVIDED_FROM_S:
            return False
        text = (self._root / file).read_text()
        return not any(shares in text for shares in ('scope="module"', "\nNODE = ", "\n@cache\n"))


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out units in the order in which the workers have collected them (``sort``)."""

    def __init__(self, config: pytest.Config, log: Any, units: Units) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._units = units

    def _split_scope(self, nodeid: str) -> str:
        return self._units.unit(nodeid)

    def _reschedule(self, node: Any) -> None:
        """Hand out more. A worker that follows a dead one has to have collected its tests, and one
        begins a test when it knows of the next, or that there is none."""
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """The test in which a worker has died, if it did in one: that is over, and what the worker
        was to run beside it is handed out again, first."""
        units = self.assigned_work.pop(node)
        left = [(unit, test) for unit in units.values() for test, done in unit.items() if not done]
        if not left:
            return None
        unit, dead = left[0]
        unit[dead] = True
        for name, unit in reversed(units.items()):
            if not all(unit.values()):
                self.workqueue[name] = unit
                self.workqueue.move_to_end(name, last=False)
        for other in self.assigned_work:
            self._reschedule(other)
        return dead


def sort(items: list[pytest.Item], units: Units) -> None:
    """Units that take longest first; tests of a unit in the order that they had."""
    first = {units.unit(item.nodeid): at for at, item in reversed(list(enumerate(items)))}

    def place(item: pytest.Item) -> tuple[float, int]:
        unit = units.unit(item.nodeid)
        return -units.seconds(unit), first[unit]

    items.sort(key=place)
