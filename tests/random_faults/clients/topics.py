"""Topics that are made, closed, opened, deleted and made anew, and such as get a window.

Messages are sent to them all the while, by a producer that asks nobody whether they are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from ledgermq.client import Admin, Producer
from ledgermq.model.errors import LedgerError
from tests.random_faults.clients.place import Client, Place, place_of

OPEN, CLOSED = 6, 4
WINDOW_MS = 3_600_000
SEND_TIMEOUT_S = 20.0
ADMIN_TIMEOUT_S = 20.0
KEPT = 4
"""Topics with a window of which a client still knows; older ones are deleted."""

PROBES, PROBE_PAUSE_S = 5, 0.25
"""Sends behind a change, each of which waits for its outcome: the change is news to a leader that
begins meanwhile. The next one comes no sooner, or it would be in doubt what had to be known."""


class _AdminClient(Client):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.admin = self.opened.enter_context(
            Admin(place.addresses, name=place.name, timeout_s=ADMIN_TIMEOUT_S)
        )
        self.producer = self.opened.enter_context(
            Producer(
                place.addresses, name=f"{place.name} sends", options=self.options(SEND_TIMEOUT_S)
            )
        )

    def change(self, verb: str, topic: str, ask: Callable[[], object]) -> bool:
        """Ask for a change of a topic, and record it; whether it was acknowledged."""
        number = self.records.begin(verb, topic=topic)
        try:
            ask()
        except LedgerError as error:
            self.records.failed(number, error, is_send=False)
            return False
        self.records.ok(number)
        return True

    def send(self, topic: str, unique_id: str | None = None) -> bool:
        """Send a message, and wait for its outcome; whether it was acknowledged."""
        value = self.value()
        asked = {} if unique_id is None else {"ids": [unique_id]}
        number = self.records.begin("send", topic=topic, values=[value], **asked)
        try:
            sent = self.producer.send(topic, value.encode(), queue_id=0, unique_id=unique_id)
            result = sent.result()
        except LedgerError as error:
            self.records.failed(number, error, is_send=True)
            return False
        self.records.ok(number, **place_of(result))
        return True


class TopicClient(_AdminClient):
    """One topic, whose life begins again and again."""

    pause_s = 0.2

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._topic = f"life-{place.name}"
        self._steps: list[str] = []

    def turn(self) -> None:
        """One change, and what comes of messages behind it."""
        if not self._steps:
            middle = self.chance.choice((["close", "open"], ["close"], []))
            self._steps = ["create", *middle, "delete"]
        verb, topic, admin = self._steps.pop(0), self._topic, self.admin
        asks: dict[str, Callable[[], object]] = {
            "create": partial(admin.create_topic, topic, queues=1),
            "close": partial(admin.alter_topic, topic, perm=CLOSED),
            "open": partial(admin.alter_topic, topic, perm=OPEN),
            "delete": partial(admin.delete_topic, topic),
        }
        if self.change(verb, topic, asks[verb]):
            for _ in range(PROBES):
                # It asks nobody: what the leader's writer knows is what counts.
                self.producer.know_queues(topic, 1)
                self.send(topic)
                time.sleep(PROBE_PAUSE_S)


class WindowClient(_AdminClient):
    """A topic without a window gets one; ids that it has are sent again from then on."""

    pause_s = 0.3

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._topics = 0

    def turn(self) -> None:
        """One topic."""
        self._topics += 1
        topic = f"window-{self.place.name}-{self._topics}"
        if not self.change("create", topic, partial(self.admin.create_topic, topic, queues=1)):
            return
        ids = [f"{topic}-{number}" for number in range(3)]
        acknowledged = [self.send(topic, one) for one in ids]
        if not all(acknowledged):
            # What was perhaps stored without a window may be so twice.
            return
        alter = partial(self.admin.alter_topic, topic, deduplication_window_ms=WINDOW_MS)
        if not self.change("window", topic, alter):
            return
        for number in range(PROBES):
            self.send(topic, ids[number % len(ids)])
            time.sleep(PROBE_PAUSE_S)
        if self._topics > KEPT:
            old = f"window-{self.place.name}-{self._topics - KEPT}"
            self.change("delete", old, partial(self.admin.delete_topic, old))
