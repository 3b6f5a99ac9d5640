"""The suite's own plugin of pytest: order of the tests, lines of progress, what was skipped, and an
end with an error when a worker has died.

All but the order is the business of the process that the user started, and of runs with workers:
a run of a few tests in one process prints what pytest prints.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.suite import durations, order, skipped, space
from tests.suite.durations import Durations
from tests.suite.progress import Progress

LONG = "LEDGERMQ_LONG"
"""The variable with which tests are run that are marked as long."""

WORKERS_MAX = 13
"""With more of them the run takes no less time: that of Spark's tests, one after the other."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--keep-durations``, as ``make durations`` gives it."""
    parser.addoption(
        "--keep-durations",
        action="store_true",
        help=f"write how long each test took to {durations.KEPT.name}",
    )


def pytest_cmdline_main(config: pytest.Config) -> None:
    """A worker that dies is not followed by another one. Not among pytest's ``addopts``: these are
    refused where pytest-xdist is left out (``-p no:xdist``)."""
    if getattr(config.option, "maxworkerrestart", "0") is None:
        config.option.maxworkerrestart = "0"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Watch a run with workers, from the process that started them."""
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        config.pluginmanager.register(Run(config, terminal), "ledgermq-run")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse the whole suite where it has no room; a few tests are let go ahead, if they exist.

    Raises:
        pytest.UsageError: there is no such file; workers would end without a word.
    """
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if config.args_source is not config.ArgsSource.TESTPATHS:
        for asked in () if config.getoption("pyargs") else config.args:
            if not Path(config.invocation_params.dir, asked.partition("::")[0]).exists():
                raise pytest.UsageError(f"file or directory not found: {asked}")
        return
    if complaint := space.look():
        pytest.exit(complaint, returncode=pytest.ExitCode.USAGE_ERROR)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is left out; and in a worker the order in which the units are handed out.

    All workers have the same.
    """
    if os.environ.get(LONG) != "1":
        left_out = pytest.mark.skip(reason=f"takes a minute: {LONG}=1, or make check-all")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(left_out)
    if hasattr(config, "workerinput"):
        order.sort(items, _units(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """``-n auto``: two for each core and one for Spark: two thirds of the tests' time is waiting
    (elections, leases, timers that fall due, processes that die)."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return min(2 * len(os.sched_getaffinity(0)) + 1, WORKERS_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """See ``order``."""
    return order.LongestFirst(config, log, _units(config))


def _units(config: pytest.Config) -> order.Units:
    return order.Units(Durations.kept(), config.rootpath)


class Run:
    """A run with workers."""

    def __init__(self, config: pytest.Config, terminal: pytest.TerminalReporter) -> None:
        self._config = config
        self._progress = Progress(terminal, Durations.kept())
        self._dead: list[str] = []
        config.pluginmanager.register(self._progress, "ledgermq-progress")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Each worker has the same tests; none if what was asked for is not there."""
        if ids and not self._progress.total:
            self._progress.begin(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker that ended with an error has died."""
        if error:
            self._dead.append(node.gateway.id)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No letters: lines say where the run stands."""
        if self._config.get_verbosity() > 0 or not isinstance(report, pytest.TestReport):
            return None
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "")
        if hasattr(report, "wasxfail"):
            return None
        if report.skipped:
            return "skipped", "", ""
        return ("failed" if report.when == "call" else "error"), "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What has not run has not passed."""
        self._progress.end()
        if self._dead and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        cache = getattr(self._config, "cache", None)
        if cache is not None:
            cache.set("ledgermq/not-run", self._not_run())
        if self._config.getoption("keep_durations"):
            durations.write(self._progress.taken)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What was left out and why; who died."""
        found = skipped.by_reason(terminalreporter.stats.get("skipped", []))
        if found:
            terminalreporter.section("left out, by reason")
            for line in skipped.lines(found):
                terminalreporter.write_line(line)
        terminalreporter.write_line(
            f"temporary folder: at most {self._progress.peak.bytes >> 20:,} MiB more than before"
        )
        for worker in self._dead:
            text = f"worker {worker} died, and the run ended: {self._not_run():,} tests did not run"
            terminalreporter.write_line(text, red=True)

    def _not_run(self) -> int:
        return self._progress.total - len(self._progress.taken)
