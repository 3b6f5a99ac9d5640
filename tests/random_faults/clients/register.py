"""A register of offsets: a group's committed offset, which one client raises and others look at."""

from __future__ import annotations

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import group_commit, group_offset
from ledgermq.model.errors import LedgerError
from tests.random_faults.clients.place import QUEUES, REGISTER, TIMEOUT_S, Client, Place

GROUP = "keepers"
HELD = 20_000
"""Messages that each queue of the topic has: what may be committed."""


class _RegisterClient(Client):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.broker: Broker = self.opened.enter_context(
            connect_broker(place.addresses, name=place.name, timeout_s=TIMEOUT_S)
        )


class OffsetWriter(_RegisterClient):
    """Raises each offset by one."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._wanted = [0] * QUEUES

    def turn(self) -> None:
        """One commit."""
        queue = self.chance.randrange(QUEUES)
        self._wanted[queue] = min(HELD, self._wanted[queue] + 1)
        value = self._wanted[queue]
        number = self.records.begin("commit offset", queue=queue, offset=value)
        try:
            self.broker.run(group_commit(GROUP, REGISTER, {queue: value}))
        except LedgerError as error:
            self.records.failed(number, error, is_send=False)
        else:
            self.records.ok(number)


class OffsetReader(_RegisterClient):
    """Looks at all of them."""

    def turn(self) -> None:
        """One look."""
        number = self.records.begin("look at offsets")
        try:
            found = self.broker.run(group_offset(GROUP, REGISTER))
        except LedgerError as error:
            self.records.failed(number, error, is_send=False)
        else:
            self.records.ok(number, offsets={str(queue): one for queue, one in found.items()})
