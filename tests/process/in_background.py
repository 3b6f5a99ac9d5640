"""Background activity of a test: a thread that goes on until the ``with`` around it is left."""

from __future__ import annotations

import threading
from typing import Self


class InBackground:
    """``run`` in a thread of its own, to be ended when ``is_ended`` is set."""

    def __init__(self) -> None:
        self.is_ended = threading.Event()
        self._thread = threading.Thread(target=self.run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_ended.set()
        self._thread.join()

    def run(self) -> None:
        """What goes on."""
        raise NotImplementedError
