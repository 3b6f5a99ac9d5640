"""Spark session of a job: work out to the workers, outcomes back.

What tasks give back is small: numbers, findings, manifests. Bytes of the log stay in the workers.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ledgermq.model.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from pyspark.core.rdd import RDD

PROGRESS_S = 0.25

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

Task = TypeVar("Task")
Result = TypeVar("Result")
Told = Callable[[int, int], None]
"""Called with the tasks that are done, and how many there are."""


class Tasks(Protocol):
    """Runs pieces of work, wherever that is."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""

    def each(
        self, work: Sequence[Task], run: Callable[[Task], Result], *, size: int, split_bytes: int
    ) -> list[Result]:
        """What ``run`` made of each piece of work, in its order."""


class JobFailedError(LedgerError):
    """Spark gave a job up: no session, lost executors, or a bug in a task; ``reason`` says."""

    number = 61
    retriable = True


class Job:
    """A job's session; ``told`` is called while its tasks run."""

    def __init__(self, session: SparkSession, told: Told) -> None:
        self._context = session.sparkContext
        self._told = told

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return int(self._context.defaultParallelism)

    def each(
        self, work: Sequence[Task], run: Callable[[Task], Result], *, size: int, split_bytes: int
    ) -> list[Result]:
        """What ``run`` made of each piece of work, in its order.

        Args:
            size: bytes of all the work: a task of Spark gets about ``split_bytes`` of it, so as
                many pieces as that is; but no worker is left without a task.

        Raises:
            LedgerError: that of the first piece, in their order, that raised one.
            JobFailedError: Spark gave up.
        """
        if not work:
            return []
        count = max(self.slots, -(-size // split_bytes))
        count = min(count, len(work))
        outcomes = self.collected(
            self._context.parallelize(work, count).map(partial(_outcome_of, run)), count
        )
        results: list[Result] = []
        for outcome in outcomes:
            if isinstance(outcome, _Failure):
                raise outcome.error
            results.append(outcome)
        return results

    def pieces(self, work: Sequence[Task]) -> RDD[Task]:
        """``work`` as a data set of one partition for each."""
        return self._context.parallelize(work, max(1, len(work)))

    def collected(self, data: RDD[Result], tasks: int) -> list[Result]:
        """The rows of ``data``, of which progress is told meanwhile.

        Raises:
            JobFailedError: Spark gave up.
        """
        is_done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(is_done, tasks), daemon=True)
        watch.start()
        try:
            found: list[Result] = data.collect()
        except Exception as error:
            # Py4J and PySpark have no class of errors in common; what is ours is ``Failure``.
            raise JobFailedError("Spark gave the job up", reason=_last_line(error)) from error
        finally:
            is_done.set()
            watch.join()
        return found

    def _watch(self, is_done: threading.Event, tasks: int) -> None:
        tracker = self._context.statusTracker()
        while not is_done.wait(PROGRESS_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            self._told(sum(stage.numCompletedTasks for stage in stages if stage), tasks)


@contextmanager
def opened_job(
    name: str, *, master: str | None, conf: Sequence[str], told: Told = lambda _done, _all: None
) -> Iterator[Job]:
    """A job on the session there is, else on one of its own that ends with the block.

    Args:
        master: Spark's; None for that of ``spark-submit``, else ``local[*]``.
        conf: settings of Spark, ``NAME=VALUE`` each.

    Raises:
        ConfigError: a setting cannot be read.
        JobFailedError: Spark does not start, as without Java.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield Job(running, told)
        return
    session = _start(name, master, conf)
    try:
        yield Job(session, told)
    finally:
        session.stop()


def _start(name: str, master: str | None, conf: Sequence[str]) -> SparkSession:
    builder = SparkSession.builder.appName(f"ledgermq {name}")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or (None if is_submitted else "local[*]")
    settings = dict(_QUIET)
    if chosen is not None:
        builder = builder.master(chosen)
        if chosen.startswith("local"):
            settings |= _LOOPBACK
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # Workers of this machine run what the driver runs.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not (equals and key.startswith("spark.")):
            raise ConfigError("must be spark.NAME=VALUE", option="--conf", value=setting)
        settings[key] = value
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise JobFailedError(
            "Spark does not start: is there a Java 17 (JAVA_HOME)?",
            master=chosen,
            reason=_last_line(error),
        ) from error


class _Failure:
    """An error of ours, on its way from a worker: pickled with the values that it names."""

    def __init__(self, error: LedgerError) -> None:
        self.error = error

    def __reduce__(self) -> tuple[object, ...]:
        error = self.error
        return _failure, (type(error), error.message, error.details)


def _failure(kind: type[LedgerError], message: str, details: dict[str, object]) -> _Failure:
    error = kind.__new__(kind)
    LedgerError.__init__(error, message, **details)
    return _Failure(error)


def _outcome_of(run: Callable[[Task], Result], task: Task) -> Result | _Failure:
    try:
        return run(task)
    except LedgerError as error:
        return _Failure(error)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    of_python = [line for line in lines if "Error" in line and not line.startswith(("at ", "File"))]
    return (of_python or lines or [type(error).__name__])[-1][:300]
