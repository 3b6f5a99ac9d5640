"""Processor time of each test, exactly: of its process and of all that it has started, also of what
was killed and has no parent any more. The kernel counts it for a control group of each worker.

    pytest -n auto --processor-times build/processor.json        as root

The file holds seconds by file and test; what a shared fixture takes is its first test's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

USED = "processor_s"
"""The property of a report that says how much its test has used."""

_FOLDERS = {
    Path("/sys/fs/cgroup/cpuacct"): ("cpuacct.usage", 1e9),
    Path("/sys/fs/cgroup"): ("cpu.stat", 1e6),
}
"""Those of the first version and of the second: a ``Place`` each."""


class Place(NamedTuple):
    """Where control groups are made, the file that says what one has used, units of a second."""

    folder: Path
    file: str
    units: float


def place() -> Place:
    """That of this machine.

    Raises:
        pytest.UsageError: there is none, or this user may make no group.
    """
    for folder, (file, units) in _FOLDERS.items():
        if (folder / file).exists() and os.access(folder, os.W_OK):
            return Place(folder, file, units)
    raise pytest.UsageError("--processor-times: control groups are for root, and not in containers")


class Group:
    """A control group of this process and of all that it starts."""

    def __init__(self) -> None:
        """Make it, and go into it."""
        self._place = place()
        self._own = self._place.folder / f"ledgermq-tests-{os.getpid()}"
        self._own.mkdir(exist_ok=True)
        (self._own / "cgroup.procs").write_text(str(os.getpid()))

    def used_s(self) -> float:
        """Seconds that all in it have used so far."""
        # "usage_usec 17" is the first line of the second version.
        first = (self._own / self._place.file).read_text().split("\n")[0]
        return int(first.split()[-1]) / self._place.units

    def close(self) -> None:
        """Go out of it; it goes as well when nobody is in it."""
        (self._place.folder / "cgroup.procs").write_text(str(os.getpid()))
        if not (self._own / "cgroup.procs").read_text():
            self._own.rmdir()


class Worker:
    """Says with the last report of each test how much it has used."""

    def __init__(self) -> None:
        self._group = Group()
        self._before_s = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """A test begins."""
        self._before_s = self._group.used_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        """Fixtures have ended, too, when the report of the end is made."""
        if call.when == "teardown":
            item.user_properties.append((USED, self._group.used_s() - self._before_s))
        return (yield)

    def pytest_sessionfinish(self) -> None:
        """No test any more."""
        self._group.close()


class Times:
    """What all workers say, for the file.

    Attributes:
        used_s: of each test, by its id.
    """

    def __init__(self, path: Path) -> None:
        self.used_s: dict[str, float] = {}
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One part of a test is over."""
        for name, value in report.user_properties:
            if name == USED:
                self.used_s[report.nodeid] = round(float(value), 3)

    def pytest_sessionfinish(self) -> None:
        """Write the file, what takes most first."""
        ordered = sorted(self.used_s.items(), key=lambda one: -one[1])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(dict(ordered), indent=1) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The sum, in a line."""
        terminalreporter.write_line(
            f"processor time: {sum(self.used_s.values()):,.0f} s of {len(self.used_s):,} tests"
            f" ({self._path})"
        )
