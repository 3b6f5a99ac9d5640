"""A request of a RocketMQ client, and the rows of what answers it: each code with its right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from ledgermq.broker.calls import CheckTopic, anybody
from ledgermq.gateway.code_rights import CodeNeeds
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.errors import LedgerError
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.sessions.client_rights import owner_of

Got = TypeVar("Got")


class Asked(NamedTuple):
    """A request, who sent it, and when it was taken (monotonic ms).

    Attributes:
        check_topic: refuses topics that the client may not use.
        who: the client, for people.
        user: name of the user that it is; empty when it is none.
    """

    connection: Connection
    command: Command
    now_ms: int
    check_topic: CheckTopic = anybody
    who: str = ""
    user: str = ""

    @property
    def owner(self) -> str:
        """Whose creations those of this request are counted with."""
        return owner_of(self.user, self.connection.peer[0])

    def check(self, topic: str, right: Right) -> None:
        """Refuse to use ``topic`` so.

        Raises:
            NoPermissionError: the client may not.
        """
        self.check_topic(topic, right)


AnswerRequest = Callable[[Asked], Command | None]
"""The reply to a request; ``None`` when it comes later, or never. Raises ``LedgerError``: why there
is none."""


class Where(Enum):
    """Which processes answer a code."""

    BROKER = "the broker process: port processes hand it over"
    PORT = "port processes, too, where there are some"


class Freshness(Enum):
    """How the tables of a node must be that answers a code."""

    CURRENT = "not behind the log"
    AS_THEY_ARE = "any, unless the node leads: of what a name server knows"
    NONE = "any: it is about this node, or is gathered for the log"


class Taken(Enum):
    """When a code that has come has its turn."""

    IN_TURN = "behind what has waited"
    AT_ONCE = "as it comes: it concerns the writer alone, unless a topic is to be made"
    IF_NOBODY_WAITS = "as it comes, or behind what waits: it is short, unless a group is to be made"


TakeOpen = Callable[[Connection, Command], bool]
"""Takes a request where users are not checked, and nobody has to know who sends it; false: it is to
be answered as others are. Nothing has changed then."""


class Code(NamedTuple):
    """One request code: who answers it, and what is decided before anybody does.

    Attributes:
        take_open: a shorter way for requests as nearly all are.
        is_for_sender: its answer is all that it is for, and costs something: it is let go of where
            the connection has ended. What changes something is done: who sends one way may close
            at once.
    """

    code: RequestCode
    answer: AnswerRequest
    needs: CodeNeeds
    at: Where = Where.BROKER
    tables: Freshness = Freshness.CURRENT
    taken: Taken = Taken.IN_TURN
    is_for_sender: bool = False
    take_open: TakeOpen | None = None


Codes = Sequence[Code]


class ReplyLater(Protocol):
    """The port's: answers a request whose ``AnswerRequest`` has returned ``None``."""

    def __call__(self, asked: Asked, reply: Command) -> None: ...


def replying(
    reply: ReplyLater,
    asked: Asked,
    made: Callable[[Got], Command],
    *,
    refused: Callable[[LedgerError], Command | None] = lambda _error: None,
) -> Callable[[Got | LedgerError], None]:
    """What takes an outcome that comes later, and answers a request with it.

    Args:
        made: the reply for a result.
        refused: another reply to an error than its refusal, or None for that.
    """

    def take(outcome: Got | LedgerError) -> None:
        if isinstance(outcome, LedgerError):
            reply(asked, refused(outcome) or refusal(asked.command, outcome))
        else:
            reply(asked, made(outcome))

    return take
