"""Request pipeline: calls and pulls, repeated on a new connection when one ends.

Never blocks, has no thread and no clock. Every question may be asked twice without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Protocol, TypeVar

from ledgermq.client.core.connection import Part
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink, Group
from ledgermq.model.errors import (
    FilterIllegalError,
    LedgerError,
    ProtocolError,
    StaleGenerationError,
    TimedOutError,
)
from ledgermq.model.names.answer_keys import PAYLOAD
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.session import (
    Standing,
    Welcome,
    decode_body,
    decode_refused,
    decode_role,
    encode_call,
)

BACKOFF_S = 0.05

Result = TypeVar("Result")
Steps = Generator["Request", None, Result]
"""Questions one after the other: each is yielded, and done when the generator goes on. So the same
steps serve callers that block and callers that await."""


AsOf = Mapping[str, object]
"""What an answer is of a node that does not surely lead: its ``role``, ``term``, whom it takes for
the ``leader``, and the ``position`` of the log up to which it has applied the tables."""


class Request:
    """One question; done when it has ``parts`` of an answer, or an ``error``."""

    __slots__ = (
        "as_of",
        "ask_at",
        "callback",
        "deadline",
        "encode",
        "error",
        "expected",
        "is_doubtful",
        "node",
        "parts",
        "refused",
    )

    def __init__(
        self,
        encode: Callable[[int], list[bytes]],
        expected: Kind,
        *,
        deadline: float,
        node: str = "",
    ) -> None:
        """A question.

        Args:
            encode: its message, from a request id.
            expected: kind of the answer.
            deadline: when to give up.
            node: the member to ask; the leader when empty, or when that one cannot be asked.
        """
        self.node = node
        self.encode = encode
        self.expected = expected
        self.deadline = deadline
        self.ask_at = 0.0
        self.is_doubtful = False
        self.parts: list[Part] | None = None
        self.error: LedgerError | None = None
        self.callback: Callable[[Request], object] | None = None
        self.refused = ""
        self.as_of: AsOf | None = None

    def done(self) -> bool:
        """Whether there is an answer or an error."""
        return self.parts is not None or self.error is not None

    def answer(self) -> list[Part]:
        """The parts of the answer.

        Raises:
            LedgerError: there is none.
        """
        if self.error is not None:
            raise self.error
        assert self.parts is not None
        return self.parts


def call_request(verb: str, arguments: dict[str, object], *, deadline: float = NEVER) -> Request:
    """A CALL."""

    def encode(request_id: int) -> list[bytes]:
        return encode_call(request_id, verb, **arguments)

    return Request(encode, Kind.RESULT, deadline=deadline)


def call_result(request: Request) -> dict[str, object]:
    """What the broker answered to a CALL; ``request.as_of`` says whether that may be old.

    Raises:
        LedgerError: it refused, or did not answer.
    """
    parts = request.answer()
    if len(parts) not in (2, 3):
        raise ProtocolError("RESULT without a body", parts=len(parts))
    told = decode_body(parts[1])
    if len(parts) == 3:
        told[PAYLOAD] = memoryview(parts[2])
    as_of = told.pop("as_of", None)
    request.as_of = as_of if isinstance(as_of, dict) else None
    return told


class Asker(Protocol):
    """Whoever has steps asked.

    Attributes:
        as_of: what the answers of the last steps are of, where one came from a node that did not
            surely lead.
    """

    as_of: AsOf | None


def noting(steps: Steps[Result], told: Asker) -> Steps[Result]:
    """The same steps, at whose end ``told.as_of`` says whether what they come to may be old."""
    found: AsOf | None = None
    request: Request | None = None
    while True:
        try:
            following = next(steps)
        except StopIteration as end:
            told.as_of = found if request is None else request.as_of or found
            result: Result = end.value
            return result
        found = found if request is None else request.as_of or found
        request = following
        yield request


class RequestPipeline:
    """Questions under way over one link.

    Invariant: a question that is not done is in exactly one of ``_waiting`` and ``_asked``.
    """

    def __init__(self, link: AnyLink) -> None:
        self.link = link
        self._waiting: list[Request] = []
        self._asked: dict[int, Request] = {}
        self._told: tuple[Welcome | None, Standing] | None = None

    @property
    def deadline(self) -> float:
        """When ``advance`` has work that no descriptor tells of."""
        link = self.link
        when = link.deadline
        for request in self._waiting:
            # Without a session there is nothing to do at ``ask_at``.
            asked = request.ask_at if link.welcome is not None else NEVER
            when = min(when, request.deadline, asked)
        for request in self._asked.values():
            when = min(when, request.deadline)
        return when

    def ask(self, request: Request) -> None:
        """Take a question; ``advance`` sends it."""
        self._waiting.append(request)

    def forget(self, request: Request) -> None:
        """Do not wait for this answer any more."""
        if request in self._waiting:
            self._waiting.remove(request)
        for request_id, asked in self._asked.items():
            if asked is request:
                del self._asked[request_id]
                return

    def id_of(self, request: Request) -> int | None:
        """By which number the node knows a question that it has not answered; None: by none now."""
        for request_id, asked in self._asked.items():
            if asked is request:
                return request_id
        return None

    def abandon(self, error: LedgerError) -> None:
        """Finish all questions with ``error``: the client is closed."""
        self._ask_all_again()
        unanswered, self._waiting = self._waiting, []
        for request in unanswered:
            self._finish(request, error=error)

    def advance(self, now: float) -> None:
        """Take answers, look after the connection and the time, send what may go."""
        self._take_answers(now)
        if self.link.advance(now):
            self._ask_all_again()
        if self.link.failure is not None:
            self._ask_all_again()
            for request in self._waiting:
                self._finish(request, error=self.link.failure)
            self._waiting.clear()
        self._expire(now)
        if self._waiting and self.link.welcome is not None:
            self._send_waiting(now)
            # Sending may have swallowed the descriptor's edge.
            self._take_answers(now)

    def _take_answers(self, now: float) -> None:
        try:
            while (parts := self.link.receive()) is not None:
                self._take(parts, now)
        except ProtocolError:
            # A node that does not speak the protocol: what it was asked has no answer.
            self.link.lose(now)
            self._ask_all_again()

    def _take(self, parts: list[Part], now: float) -> None:
        header = decode_header(parts[0])
        if header.kind is Kind.ROLE and len(parts) == 2:
            # From the only node that there is: a ``Group`` keeps those of its nodes.
            self._told = self.link.welcome, decode_role(parts[1])
            return
        request = self._asked.get(header.request_id)
        if request is None:
            return
        if header.kind is request.expected:
            del self._asked[header.request_id]
            self._finish(request, parts=parts)
            return
        if header.kind is not Kind.REFUSED or len(parts) != 2:
            raise ProtocolError("not an answer to this question", kind=header.kind.name)
        refusal = decode_refused(parts[1])
        del self._asked[header.request_id]
        if request.node:
            # Whatever a follower has against it, the leader decides.
            request.node = ""
            self._waiting.append(request)
        elif refusal.number == StaleGenerationError.number:
            self._waiting.append(request)
            self.link.lose(now)
            self._ask_all_again()
        elif refusal.retriable:
            request.is_doubtful |= refusal.stored == "unknown"
            request.refused = refusal.reason
            request.ask_at = now + max(BACKOFF_S, refusal.retry_after_ms / 1_000)
            self._waiting.append(request)
        else:
            error = refusal.to_error()
            if request.is_doubtful:
                error.details["earlier"] = "the same, asked before, may have been carried out"
            self._finish(request, error=error)

    def _send_waiting(self, now: float) -> None:
        later: list[Request] = []
        refused: list[tuple[Request, LedgerError]] = []
        for request in self._waiting:
            request_id = self.link.next_id()
            try:
                is_sent = request.ask_at <= now and self._send(request, request_id)
            except FilterIllegalError as error:
                # What is asked has no form in the version that this node speaks.
                refused.append((request, error))
                continue
            if is_sent:
                self._asked[request_id] = request
            else:
                later.append(request)
        self._waiting = later
        for request, reason in refused:
            self._finish(request, error=reason)

    def _send(self, request: Request, request_id: int) -> bool:
        parts = request.encode(request_id)
        if request.node and isinstance(self.link, Group):
            if self.link.send_to(request.node, parts):
                return True
            request.node = ""
        return self.link.send(parts)

    def _ask_all_again(self) -> None:
        self._waiting = [*self._asked.values(), *self._waiting]
        self._asked.clear()

    def _expire(self, now: float) -> None:
        late = [request for request in self._waiting if request.deadline <= now]
        late += [request for request in self._asked.values() if request.deadline <= now]
        for request in late:
            self.forget(request)
            if self.link.welcome is None:
                self._finish(request, error=self.link.unreachable())
            else:
                error = TimedOutError("no answer in time")
                if request.refused:
                    error.details["refused"] = request.refused
                    if leader := self._leader_elsewhere(self.link.welcome):
                        error.details["leader"] = leader
                self._finish(request, error=error)

    def _leader_elsewhere(self, welcome: Welcome) -> str:
        """Who leads, as the node says that is asked; empty: that one does, or knows of none."""
        standing = welcome.standing
        if self._told is not None and self._told[0] is welcome:
            standing = self._told[1]
        return "" if standing.leads else standing.leader

    def _finish(
        self,
        request: Request,
        *,
        parts: list[Part] | None = None,
        error: LedgerError | None = None,
    ) -> None:
        request.parts = parts
        request.error = error
        if request.callback is not None:
            request.callback(request)
