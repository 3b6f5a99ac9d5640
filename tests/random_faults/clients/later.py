"""Messages for later, by level and by time, some of which are taken back."""

from __future__ import annotations

import time
from typing import Any

from ledgermq.client import Producer
from ledgermq.model.errors import LedgerError
from tests.random_faults.clients.place import LATER, QUEUES, Client, Place, place_of

LEVELS_MS = {1: 1_000, 2: 5_000, 3: 10_000}
"""Of RocketMQ's levels, which are the settings' default."""

TIMER_MAX_MS = 8_000
FAR_MS = 86_400_000
KINDS = ("level", "timer", "cancelled", "far")


class LaterClient(Client):
    """Sends some, waits for where they are, and takes some back."""

    pause_s = 0.3

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._producer = self.opened.enter_context(
            Producer(place.addresses, name=place.name, options=self.options())
        )

    def turn(self) -> None:
        """A few messages."""
        sent = []
        for _ in range(4):
            kind, value = self.chance.choice(KINDS), self.value()
            level = self.chance.choice(list(LEVELS_MS)) if kind == "level" else 0
            delay_ms = LEVELS_MS[level] if level else self.chance.randrange(200, TIMER_MAX_MS)
            delay_ms = FAR_MS if kind == "far" else delay_ms
            number = self.records.begin(
                "later", topic=LATER, kind=kind, values=[value], delay_ms=delay_ms,
                wall_ms=int(time.time() * 1_000),
            )  # fmt: skip
            how: dict[str, Any] = {"delay_level": level} if level else {"delay": delay_ms}
            queue = self.chance.randrange(QUEUES)
            try:
                future = self._producer.send(LATER, self.body(value), queue_id=queue, **how)
            except LedgerError as error:
                self.records.failed(number, error, is_send=True)
            else:
                sent.append((number, kind, value, future))
        for number, kind, value, future in sent:
            try:
                result = future.result()
            except LedgerError as error:
                self.records.failed(number, error, is_send=True)
                continue
            self.records.ok(number, **place_of(result))
            if kind == "cancelled":
                self._cancel(value, result.unique_id)

    def _cancel(self, value: str, unique_id: str) -> None:
        number = self.records.begin("cancel", values=[value])
        try:
            self._producer.cancel(unique_id)
        except LedgerError as error:
            self.records.failed(number, error, is_send=False)
        else:
            self.records.ok(number)
