"""What the suite prints while it runs: a line now and then, and each failure at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.suite.durations import Durations, function_of
from tests.suite.space import Peak

LINE_EVERY_S = 20.0
LOOK_EVERY_S = 1.0
LONG_S = 20.0
"""A test that has run for so long is named."""

_KINDS = {"call": "FAILED", "setup": "FAILED in setup", "teardown": "FAILED in teardown"}


class Progress:
    """Counts what has been reported. The lines are written by a thread, so that a test that takes
    minutes is not taken for a run that stands still."""

    def __init__(self, terminal: pytest.TerminalReporter, durations: Durations) -> None:
        self.taken: dict[str, float] = {}
        """Seconds of each test that has ended, by its id."""
        self.left_out: set[str] = set()
        """Those of them that were skipped."""
        self.total = 0
        self.peak = Peak()
        self._terminal = terminal
        self._durations = durations
        self._cases: Counter[tuple[str, str]] = Counter()
        self._expected_s = 0.0
        self._done_s = 0.0
        self._outcomes: Counter[str] = Counter()
        self._running: dict[str, float] = {}
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write_lines, daemon=True)

    def begin(self, nodeids: Sequence[str]) -> None:
        """These tests will run."""
        self.total = len(nodeids)
        self._cases = Counter(map(function_of, nodeids))
        self._expected_s = sum(map(self._expected, nodeids))
        self._thread.start()

    def end(self) -> None:
        """No line any more."""
        if self._thread.is_alive():
            self._is_over.set()
            self._thread.join()

    @pytest.hookimpl
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note which tests are under way."""
        with self._lock:
            self._running[nodeid] = time.monotonic()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count; say at once what failed."""
        with self._lock:
            self.taken[report.nodeid] = self.taken.get(report.nodeid, 0.0) + report.duration
            if report.failed:
                kind = _KINDS.get(report.when or "", "DIED IN")
                self._outcomes["failed"] += 1
                self._say(f"{kind}  {report.nodeid}", red=True)
            elif report.skipped:
                self._outcomes["skipped"] += 1
                if not hasattr(report, "wasxfail"):
                    self.left_out.add(report.nodeid)
            # One in whose midst its worker died has no end of its own.
            if report.when not in ("setup", "call"):
                self._running.pop(report.nodeid, None)
                self._outcomes["done"] += 1
                self._done_s += self._expected(report.nodeid)

    def line(self) -> str:
        """Where the run stands."""
        now = time.monotonic()
        minutes, seconds = divmod(int(now - self._began), 60)
        text = f"{minutes:3d}:{seconds:02d}  {self._outcomes['done']:,} of {self.total:,} tests"
        if self._expected_s:
            text += f", {100 * self._done_s / self._expected_s:.0f} % of the time that they take"
        for outcome in ("failed", "skipped"):
            if self._outcomes[outcome]:
                text += f", {self._outcomes[outcome]} {outcome}"
        if self._running:
            nodeid, since = min(self._running.items(), key=lambda item: item[1])
            if now - since > LONG_S:
                text += f"; {now - since:.0f} s in {nodeid}"
        return text

    def _expected(self, nodeid: str) -> float:
        return self._durations.of_function(nodeid) / max(1, self._cases[function_of(nodeid)])

    def _write_lines(self) -> None:
        next_line = self._began + LINE_EVERY_S
        while not self._is_over.wait(LOOK_EVERY_S):
            self.peak.look()
            now = time.monotonic()
            if now >= next_line:
                next_line = now + LINE_EVERY_S
                with self._lock:
                    self._say(self.line())

    def _say(self, line: str, **markup: bool) -> None:
        self._terminal.write_line(line, **markup)
        # Into a file or a pipe it would be written when some thousand bytes have come together.
        self._terminal.flush()
