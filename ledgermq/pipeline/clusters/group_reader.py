"""Reader of one of several groups: it has a thread, so that nobody waits for another group."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ledgermq.model.errors import LedgerError
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.queue_ranges import (
    MessageRange,
    Offsets,
    Queue,
    checkpoint_table,
    queue_document,
)
from ledgermq.pipeline.source_options import SourceOptions
from ledgermq.pipeline.stream_reader import AGAIN_S, StreamReader

Result = TypeVar("Result")

ANSWER_MS = 10_000
"""Longest wait for the answer to one question of the driver; what fails is asked again for
``timeoutMs``."""


class StreamedGroup:
    """A ``StreamReader`` of one group, which its own thread alone calls.

    Attributes:
        nodes: addresses of the group's nodes.
        silent_since: since when it has not answered, by ``time.monotonic``; None: it has.
        failure: why.
        is_told: somebody was told that it does not answer.
    """

    def __init__(self, options: SourceOptions, columns: ChosenColumns, name: str, nodes: str):
        """Nothing is asked yet."""
        self.name = name
        self.nodes = nodes
        self.silent_since: float | None = None
        self.failure: LedgerError | None = None
        self.is_told = False
        self._timeout_s = options.timeout_ms / 1_000
        answer_ms = min(ANSWER_MS, options.timeout_ms)
        self._reader = StreamReader(options.of_group(name, nodes, answer_ms=answer_ms), columns)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"spark-{name}")
        self._look: Future[Offsets] | None = None
        self._asked_at = 0.0
        self._had_left = False
        self._is_closing = False

    @property
    def bounds(self) -> dict[Queue, MessageRange]:
        """What its queues held when they were looked at last."""
        return self._reader.bounds

    def begin_look(self, begins: Offsets, *, has_left: bool) -> Future[Offsets]:
        """Have it asked where its queues end; one question is under way at once."""
        if self._look is None:
            start = dict(queue_document(begins))
            self._asked_at, self._had_left = time.monotonic(), has_left
            self._look = self._thread.submit(
                lambda: checkpoint_table(self._reader.latestOffset(start, ReadAllAvailable()))
            )
        return self._look

    def take_look(self) -> tuple[Offsets, bool] | None:
        """Where its queues end, and whether it had left when it was asked; None: no answer yet.

        Raises:
            LedgerError: it has answered what will not pass by itself.
        """
        look = self._look
        assert look is not None, "it was asked"
        if not look.done():
            self._note_silence(self._asked_at, None)
            return None
        self._look = None
        try:
            ends = look.result()
        except LedgerError as error:
            self._raise_lasting(error)
            self._note_silence(self._asked_at, error)
            return None
        self.silent_since, self.failure, self.is_told = None, None, False
        return ends, self._had_left

    def ask(self, question: Callable[[StreamReader], Result]) -> Future[Result]:
        """Have it asked, again and again for ``timeoutMs`` while it does not answer."""
        until = time.monotonic() + self._timeout_s

        def asked() -> Result:
            while True:
                try:
                    return question(self._reader)
                except LedgerError as error:
                    self._raise_lasting(error)
                    if self._is_closing or time.monotonic() >= until:
                        raise
                time.sleep(AGAIN_S)

        return self._thread.submit(asked)

    def close(self) -> None:
        """Let go of it, once it has answered what it was asked."""
        self._is_closing = True
        self._thread.submit(self._reader.stop)
        self._thread.shutdown(wait=False)

    def is_dead(self) -> bool:
        """Whether it has not answered for ``timeoutMs``."""
        since = self.silent_since
        return since is not None and time.monotonic() - since >= self._timeout_s

    def _note_silence(self, since: float, failure: LedgerError | None) -> None:
        if self.silent_since is None:
            self.silent_since = since
        self.failure = failure or self.failure

    def _raise_lasting(self, error: LedgerError) -> None:
        if not error.retriable:
            error.details["broker_group"] = self.name
            raise error
