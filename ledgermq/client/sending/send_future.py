"""Future of a send: lighter than ``concurrent.futures.Future``, for a producer makes many."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, Protocol, TypeVar

from ledgermq.client.core.results import FrameResult
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.model.errors import LedgerError

Result_co = TypeVar("Result_co", covariant=True)


class Waiter(Protocol):
    """How the caller's thread waits: the producer's part of ``result``."""

    def wait_for(self, future: SendFuture[object], timeout: float | None) -> None:
        """Return when ``future`` is done, or when ``timeout`` seconds are over."""
        ...


class SendFuture(Generic[Result_co]):
    """The outcome of one message or of one batch, once there is one.

    ``callback`` is called once with the future, by whichever thread takes the node's answer: it
    must be short, and must not wait for another future.
    """

    __slots__ = ("_answer", "_error", "_make", "_waiter", "_waiting", "callback", "unique_id")

    def __init__(
        self,
        waiting: Waiter,
        make: Callable[[FrameResult], Result_co],
        unique_id: str,
        callback: Callable[[SendFuture[Result_co]], object] | None = None,
    ) -> None:
        """A future that is not done.

        Args:
            make: picks this message's result from the answer to its frame.
            unique_id: of the message, or of the first one of a batch.
        """
        self.unique_id = unique_id
        self.callback = callback
        self._waiting = waiting
        self._make = make
        self._answer: FrameResult | None = None
        self._error: LedgerError | None = None
        self._waiter: Lock | None = None

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._answer is not None or self._error is not None

    def result(self, timeout: float | None = None) -> Result_co:
        """Where the message is stored; waits for it.

        Args:
            timeout: seconds; the producer's own time for a message when left out. The message stays
                under way when it is over.

        Raises:
            TimedOutError: there is no outcome yet, or the producer's time for the message is over.
            OutcomeUnknownError: the message may or may not be stored.
            LedgerError: the message is not stored; the class says why.
        """
        if self._answer is None:
            if self._error is None:
                if timeout is not None and type(timeout) is not float:
                    check_timeout(timeout)
                self._waiting.wait_for(self, timeout)
            if self._error is not None:
                raise self._error
            assert self._answer is not None
        return self._make(self._answer)

    def exception(self, timeout: float | None = None) -> LedgerError | None:
        """Why there is no result, ``None`` when there is one; waits as ``result`` does.

        Raises:
            TimedOutError: there is no outcome yet.
        """
        if self._answer is None and self._error is None:
            self._waiting.wait_for(self, timeout)
        return self._error

    def settle(self, outcome: FrameResult | LedgerError) -> None:
        """Note the outcome, and wake who waits; the producer's."""
        assert self._answer is None and self._error is None
        if type(outcome) is FrameResult:
            self._answer = outcome
        else:
            assert isinstance(outcome, LedgerError)
            self._error = outcome
        if self._waiter is not None:
            self._waiter.release()

    def settle_as(self, other: SendFuture[Result_co]) -> None:
        """Have the outcome of another one, which is done; the producer's."""
        outcome = other._answer or other._error
        assert outcome is not None, "only what is done has an outcome"
        self.unique_id = other.unique_id
        self._make = other._make
        self.settle(outcome)

    def waiter(self) -> Lock:
        """A lock that is released once the future is done; under the producer's lock only."""
        assert not self.done()
        if self._waiter is None:
            self._waiter = Lock()
            self._waiter.acquire()
        return self._waiter
