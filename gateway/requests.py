"""A request of a RocketMQ client, and the shape of what answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ledgermq.broker.access import Right
from ledgermq.gateway.remoting_sockets import Connection
from ledgermq.process.client_rights import owner_of
from ledgermq.remoting.command import Command
from ledgermq.serving.calls import CheckTopic, anybody


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


Handler = Callable[[Asked], Command | None]
"""The reply to a request; ``None`` when it comes later, or never. Raises ``LedgerError``: why there
is none."""

Codes = Mapping[int, Handler]
"""Who answers which request code."""


class ReplyLater(Protocol):
    """The port's: answers a request whose handler has returned ``None``."""

    def __call__(self, asked: Asked, reply: Command) -> None: ...
