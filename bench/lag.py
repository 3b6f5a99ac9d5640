"""By how many seconds dispatch is behind what is committed, on any number of nodes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ledgermq.ipc.cursor_page import CursorPage

LOOK_EVERY_S = 0.05


class LagWatch:
    """Samples the cursor pages of nodes that run until it ends.

    Attributes:
        worst_s: by node, the largest lag seen behind what any of the nodes knew to be committed.
    """

    def __init__(self, pages: Mapping[str, CursorPage]) -> None:
        self.worst_s = dict.fromkeys(pages, 0.0)
        self._pages = pages
        self._marks: dict[str, deque[tuple[int, float]]] = {name: deque() for name in pages}

    def run(self, stop: threading.Event) -> None:
        """Sample until told to stop."""
        while not stop.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Take one sample."""
        # First what follows, then what it follows: none is seen ahead.
        dispatched = {name: page.read_dispatched().position for name, page in self._pages.items()}
        now = time.monotonic()
        committed = max(page.read_committed().position for page in self._pages.values())
        for name, marks in self._marks.items():
            marks.append((committed, now))
            while len(marks) > 1 and marks[0][0] <= dispatched[name]:
                marks.popleft()
            if marks[0][0] > dispatched[name]:
                self.worst_s[name] = max(self.worst_s[name], now - marks[0][1])

    def is_level(self) -> bool:
        """Whether every node has dispatched all that any knows to be committed."""
        committed = max(page.read_committed().position for page in self._pages.values())
        return all(page.read_dispatched().position >= committed for page in self._pages.values())

    def take(self) -> dict[str, float]:
        """The worst lags since they were taken last, milliseconds exact."""
        worst, self.worst_s = self.worst_s, dict.fromkeys(self._pages, 0.0)
        return {name: round(lag, 3) for name, lag in worst.items()}


@contextmanager
def lag_watch(runtimes: Mapping[str, Path]) -> Iterator[LagWatch]:
    """A watch that samples on a thread of its own.

    Args:
        runtimes: runtime directories of the nodes, by their names.
    """
    with ExitStack() as held:
        pages = {
            name: held.enter_context(CursorPage.attach(runtime / "cursors"))
            for name, runtime in runtimes.items()
        }
        watch, stop = LagWatch(pages), threading.Event()
        thread = threading.Thread(target=watch.run, args=(stop,))
        thread.start()
        try:
            yield watch
        finally:
            stop.set()
            thread.join()
