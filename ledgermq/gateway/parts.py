"""Parts of a port: those that answer codes, and those that work for them."""

from __future__ import annotations

from ledgermq.gateway.requests import Codes
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.config.settings import Settings
from ledgermq.wire.session import Standing


class PortPart:
    """One of them; it has what it needs of these methods, and the others do nothing.

    Attributes:
        codes: what it answers.
    """

    codes: Codes = ()

    def turn(self, now_ms: int) -> None:
        """Do what is due; in each turn."""

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do that no descriptor tells of; None when never."""
        return None

    def tell_standing(self, standing: Standing) -> None:
        """This node is something else in its group now, or another one leads."""

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again."""

    def close(self) -> None:
        """Tell all who wait, and end."""


class PortParts:
    """All parts of a port, each of them a ``PortPart``, in the order of their turns; they end the
    other way round.

    Attributes:
        codes: what they answer.
        turns: to be called in each turn of the port; of those alone that do something then.
    """

    def __init__(self, *parts: PortPart) -> None:
        self.codes: Codes = [row for part in parts for row in part.codes]
        self._parts = parts
        self.turns = [part.turn for part in parts if type(part).turn is not PortPart.turn]
        self._deadlines = [
            part.next_deadline_ms
            for part in parts
            if type(part).next_deadline_ms is not PortPart.next_deadline_ms
        ]

    def next_deadline_ms(self) -> int | None:
        """The first of all."""
        deadlines = [next_deadline_ms() for next_deadline_ms in self._deadlines]
        return min((one for one in deadlines if one is not None), default=None)

    def tell_standing(self, standing: Standing) -> None:
        for part in self._parts:
            part.tell_standing(standing)

    def forget(self, connection: Connection) -> None:
        for part in self._parts:
            part.forget(connection)

    def take_settings(self, settings: Settings) -> None:
        for part in self._parts:
            part.take_settings(settings)

    def close(self) -> None:
        for part in reversed(self._parts):
            part.close()
