"""Worker processes for checks of files: this process, or several of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import Synchronized
from typing import Protocol, TypeVar

_PROGRESS_S = 0.2

Report = TypeVar("Report")
Told = Callable[[int], None]
Work = Callable[[Told], Report]
"""One file to be looked at, perhaps in another process; it tells the bytes it has read."""


class Runner(Protocol):
    """Whoever has workers for the files; all work, and all outcomes, can be pickled."""

    def __call__(self, work: Sequence[Work[Report]], total: int) -> Iterable[Report]:
        """The outcomes, in the order of the work, which is about ``total`` bytes."""
        ...


class FileWorkers:
    """The processes of this machine as a ``Runner``."""

    def __init__(self, jobs: int, told: Callable[[int, int], None]) -> None:
        """Work in so many processes; 1 is this one.

        Args:
            told: bytes that were read, and bytes that there are; called now and then.
        """
        self._jobs = jobs
        self._told = told

    def __call__(self, work: Sequence[Work[Report]], total: int) -> Iterable[Report]:
        if self._jobs <= 1 or len(work) <= 1:
            return self._one_by_one(work, total)
        return self._side_by_side(work, total)

    def _one_by_one(self, work: Sequence[Work[Report]], total: int) -> Iterator[Report]:
        done = 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            if total:
                self._told(done, total)

        for one in work:
            yield one(told)

    def _side_by_side(self, work: Sequence[Work[Report]], total: int) -> list[Report]:
        context = multiprocessing.get_context("fork")
        counter = context.Value("Q", 0)
        with ProcessPoolExecutor(
            min(self._jobs, len(work)),
            mp_context=context,
            initializer=_enter_worker,
            initargs=(counter,),
        ) as pool:
            futures = [pool.submit(_run_in_worker, one) for one in work]
            waiting = set(futures)
            while waiting:
                _, waiting = wait(waiting, _PROGRESS_S, return_when=FIRST_COMPLETED)
                if total:
                    self._told(counter.value, total)
            return [future.result() for future in futures]


_bytes_read: Synchronized[int] | None = None
"""Bytes that all workers have read together, in a worker process."""


def _enter_worker(counter: Synchronized[int]) -> None:
    global _bytes_read  # noqa: PLW0603 - a pool's process has no other place for it
    _bytes_read = counter


def _run_in_worker(work: Work[Report]) -> Report:
    def told(count: int) -> None:
        assert _bytes_read is not None
        with _bytes_read.get_lock():
            _bytes_read.value += count

    return work(told)
