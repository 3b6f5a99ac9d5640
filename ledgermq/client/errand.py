"""Errand: steps under way at one broker, which nobody waits for."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ledgermq.client.core.requests import Request, RequestPipeline, Result, Steps
from ledgermq.model.errors import LedgerError

Step = TypeVar("Step")


class StepsUnderWay(Generic[Step, Result]):
    """Steps of which each is taken when the one before has what it needs.

    Attributes:
        error: why it has no result, once it is done.
        is_done: whether it has a result or an error.
    """

    def __init__(
        self,
        requests: RequestPipeline,
        steps: Generator[Step, None, Result],
        *,
        timeout_s: float,
    ) -> None:
        """Nothing is done yet.

        Args:
            timeout_s: for each question.
        """
        self.error: LedgerError | None = None
        self.is_done = False
        self._requests = requests
        self._steps = steps
        self._timeout_s = timeout_s
        self._result: list[Result] = []

    def result(self) -> Result:
        """What the steps have come to; only once it is done.

        Raises:
            LedgerError: the broker refused a question, or did not answer.
        """
        if self.error is not None:
            raise self.error
        return self._result[0]

    def _next(self) -> Step | None:
        """The next step; none: it is done."""
        try:
            return next(self._steps)
        except StopIteration as end:
            self._result.append(end.value)
        except LedgerError as error:
            self.error = error
        self.is_done = True
        return None

    def _ask(self, request: Request) -> None:
        request.deadline = time.monotonic() + self._timeout_s
        self._requests.ask(request)


class Errand(StepsUnderWay[Request, Result]):
    """Goes on with each answer, while whoever owns the requests drives them."""

    def __init__(
        self, requests: RequestPipeline, steps: Steps[Result], *, timeout_s: float
    ) -> None:
        """Ask the first question; see ``StepsUnderWay``."""
        super().__init__(requests, steps, timeout_s=timeout_s)
        self._go_on()

    def _go_on(self, _answered: Request | None = None) -> None:
        request = self._next()
        if request is not None:
            request.callback = self._go_on
            self._ask(request)


def raise_first(
    not_asked: Sequence[LedgerError], done: Mapping[str, StepsUnderWay[Any, None]]
) -> None:
    """Raise what kept the first of several groups of brokers from doing it, if one has not.

    Args:
        not_asked: of groups that were not asked.
        done: what the others were asked, by their names, which go into the details.

    Raises:
        LedgerError: see above.
    """
    failures = [*not_asked]
    for name, steps in done.items():
        if steps.error is not None:
            steps.error.details["broker_group"] = name
            failures.append(steps.error)
    if failures:
        raise failures[0]
