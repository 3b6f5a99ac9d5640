"""Cache of what was read of pieces: bounded, and each thing is made once for all who want it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

from ledgermq.pipeline.pieces.piece_file import Ranges

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SharedCache(Generic[Key, Value]):
    """Values by keys, of which those that were not asked for longest go first.

    It may be used by several threads. Invariant: ``_weight`` is that of all values in ``_values``,
    and at most ``limit``, unless there is one alone.
    """

    def __init__(self, limit: int, weigh: Callable[[Value], int]) -> None:
        """Keep values that weigh ``limit`` together."""
        self._limit = limit
        self._weigh = weigh
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._making: dict[Key, Future[Value]] = {}
        self._weight = 0
        self._lock = Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of ``key``; who asks first makes it, and the others wait for that.

        What ``make`` raises is raised to all who wait, and nothing is kept.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            future = self._making.get(key)
            is_mine = future is None
            if future is None:
                future = self._making[key] = Future()
        if not is_mine:
            return future.result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            future.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._keep(key, value)
        future.set_result(value)
        return value

    def forget(self, is_wrong: Callable[[Key], bool]) -> None:
        """Have what is kept under these keys made anew when it is asked for next."""
        with self._lock:
            for key in [key for key in self._values if is_wrong(key)]:
                self._weight -= self._weigh(self._values.pop(key))

    def _keep(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._weight += self._weigh(value)
        while self._weight > self._limit and len(self._values) > 1:
            _, gone = self._values.popitem(last=False)
            self._weight -= self._weigh(gone)


class KeptRanges:
    """``Ranges`` of which what was read is kept."""

    def __init__(self, ranges: Ranges, kept: SharedCache[tuple[str, int, int], bytes]) -> None:
        """Those of ``ranges``; ``kept`` may be shared with others."""
        self._ranges = ranges
        self._kept = kept
        self.name = ranges.name
        self.size = ranges.size

    def read(self, start: int, end: int) -> bytes:
        return self._kept.get((self.name, start, end), lambda: self._ranges.read(start, end))
