"""Errand: steps under way at one broker, which nobody waits for."""

from __future__ import annotations

import time
from typing import Generic

from ledgermq.client.core.requests import Request, RequestPipeline, Result, Steps
from ledgermq.model.errors import LedgerError


class Errand(Generic[Result]):
    """Goes on with each answer, while whoever owns the requests drives them.

    Attributes:
        error: why it has no result, once it is done.
        is_done: whether it has a result or an error.
    """

    def __init__(
        self, requests: RequestPipeline, steps: Steps[Result], *, timeout_s: float
    ) -> None:
        """Ask the first question.

        Args:
            timeout_s: for each question.
        """
        self.error: LedgerError | None = None
        self.is_done = False
        self._requests = requests
        self._steps = steps
        self._timeout_s = timeout_s
        self._result: list[Result] = []
        self._go_on()

    def result(self) -> Result:
        """What the steps have come to; only once it is done.

        Raises:
            LedgerError: the broker refused a question, or did not answer.
        """
        if self.error is not None:
            raise self.error
        return self._result[0]

    def _go_on(self, _answered: Request | None = None) -> None:
        try:
            request = next(self._steps)
        except StopIteration as end:
            self._result.append(end.value)
            self.is_done = True
            return
        except LedgerError as error:
            self.error = error
            self.is_done = True
            return
        request.deadline = time.monotonic() + self._timeout_s
        request.callback = self._go_on
        self._requests.ask(request)
