"""The suite's own plugin of pytest: order of the tests, lines of progress, what was skipped, limits
of each test, and an end with an error when a worker has died.

All but the order is the business of the process that the user started, and of runs with workers:
a run of a few tests in one process prints what pytest prints.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.suite import compiled, durations, long, order, processor, skipped, space
from tests.suite.durations import Durations
from tests.suite.limits import Limits, Watch
from tests.suite.progress import Progress

LONG = "LEDGERMQ_LONG"
"""The variable with which tests are run that are marked as long (``long``)."""

WORKERS_OF_A_CORE, WORKERS_OF_A_CORE_LONG = 5, 3
"""Without long tests, and with them, which work more and wait less."""

WORKERS_MAX = 20
"""With more of them the run takes no less time: that of Spark's tests, one after the other."""

RESTARTS_MAX = 20
"""With more workers that have died something is wrong with all tests, and the run ends."""

_STACKS = "ledgermq-stacks"
"""The word with which a worker is told where it keeps the stacks of a test that exceeds a limit."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--keep-durations``, as ``make durations`` gives it; limits and measures of each test."""
    parser.addoption(
        "--keep-durations",
        action="store_true",
        help=f"write how long each test took to {durations.KEPT.name}",
    )
    parser.addoption(
        "--kept-durations", type=Path, default=durations.KEPT, metavar="FILE",
        help="how long the tests took when that was last measured",
    )  # fmt: skip
    parser.addoption(
        "--long-budget-s", type=float, default=float("inf"), metavar="SECONDS",
        help="of long tests run only what is over in this time, as the kept durations have it",
    )  # fmt: skip
    parser.addoption(
        "--processor-times", type=Path, metavar="FILE",
        help="write the processor time of each test, with all that it has started (-n; as root)",
    )  # fmt: skip
    for kind, what in (("processor", "processor time of its process tree"), ("wall", "the clock")):
        parser.addoption(
            f"--limit-{kind}-s", type=float, default=float("inf"), metavar="SECONDS",
            help=f"a test that takes more of {what} fails, and its worker is begun anew (-n)",
        )  # fmt: skip


def pytest_cmdline_main(config: pytest.Config) -> None:
    """A worker that dies is followed by another one, some times. Not among pytest's ``addopts``:
    these are refused where pytest-xdist is left out (``-p no:xdist``)."""
    if getattr(config.option, "maxworkerrestart", "0") is None:
        config.option.maxworkerrestart = str(RESTARTS_MAX)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Watch a run with workers, from the process that started them; and each test, from its own."""
    told = getattr(config, "workerinput", None)
    if told is not None:
        limits = Limits(config.getoption("limit_processor_s"), config.getoption("limit_wall_s"))
        if min(limits) < float("inf"):
            config.pluginmanager.register(Limited(limits, Path(told[_STACKS])), "ledgermq-limits")
        if config.getoption("processor_times") is not None:
            config.pluginmanager.register(processor.Worker(), "ledgermq-processor")
    elif config.getoption("numprocesses", None):
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        config.pluginmanager.register(Run(config, terminal), "ledgermq-run")
        if path := config.getoption("processor_times"):
            processor.place()
            config.pluginmanager.register(processor.Times(path), "ledgermq-processor")


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
    if config.getoption("numprocesses", None):
        compiled.compile_all(compiled.stale(config.rootpath / "tests"), config.rootpath)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests, and all that they import, are in use until the end: the collector of
    cycles looks through them neither meanwhile, which took half of the time, nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is left out; and in a worker the order in which the units are handed out.

    All workers have the same.
    """
    long.excuse_first_cases(items)
    if os.environ.get(LONG) != "1":
        asked = [] if config.getoption("pyargs") else [a for a in config.args if "::" in a]
        long.leave_out(items, asked)
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    long.fit(items, _kept(config), config.getoption("long_budget_s") * workers)
    if hasattr(config, "workerinput"):
        order.sort(items, _units(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """``-n auto``: five for each core, for four fifths of the tests' time is waiting (elections,
    leases, timers that fall due, processes that die); three where long ones run."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    each = WORKERS_OF_A_CORE_LONG if os.environ.get(LONG) == "1" else WORKERS_OF_A_CORE
    return min(each * len(os.sched_getaffinity(0)), WORKERS_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """See ``order``."""
    return order.LongestFirst(config, log, _units(config))


def _units(config: pytest.Config) -> order.Units:
    return order.Units(_kept(config), config.rootpath)


def _kept(config: pytest.Config) -> Durations:
    return Durations.kept(config.getoption("kept_durations"))


class Limited:
    """A worker whose tests have limits."""

    def __init__(self, limits: Limits, stacks: Path) -> None:
        self._watch = Watch(limits, stacks)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set-up and end of what the test asks for count, too."""
        self._watch.begin(item.nodeid)
        try:
            return (yield)
        finally:
            self._watch.end()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """No test any more."""
        self._watch.close()


class Run:
    """A run with workers."""

    def __init__(self, config: pytest.Config, terminal: pytest.TerminalReporter) -> None:
        self._config = config
        self._progress = Progress(terminal, _kept(config))
        self._dead: list[str] = []
        self._stacks = Path(tempfile.mkdtemp(prefix="ledgermq-stacks-"))
        config.pluginmanager.register(self._progress, "ledgermq-progress")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where it keeps the stacks of a test that exceeds a limit."""
        node.workerinput[_STACKS] = str(self._stacks / node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        """A test whose worker has ended, with what that has kept of it."""
        kept = self._stacks / report.node.gateway.id
        if kept.exists() and (text := kept.read_text(errors="replace")):
            report.longrepr = f"{report.longrepr}\n{text}"

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
        # A worker that dies in a test leaves "???" as the part of it.
        return ("error" if report.when in ("setup", "teardown") else "failed"), "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What has not run has not passed."""
        self._progress.end()
        shutil.rmtree(self._stacks, ignore_errors=True)
        if self._dead and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        cache = getattr(self._config, "cache", None)
        if cache is not None:
            cache.set("ledgermq/not-run", self._not_run())
        if self._config.getoption("keep_durations"):
            durations.write(
                self._progress.taken,
                self._progress.left_out,
                self._config.getoption("kept_durations"),
            )

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
            terminalreporter.write_line(f"worker {worker} died", red=True)
        if self._dead and (count := self._not_run()):
            terminalreporter.write_line(f"{count:,} tests did not run", red=True)

    def _not_run(self) -> int:
        return self._progress.total - len(self._progress.taken)
