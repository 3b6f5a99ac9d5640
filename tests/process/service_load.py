"""Clients of all that a broker does, each in its thread, and what each may expect in the end."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ledgermq.client import GroupConsumer, GroupOptions, Producer, ProducerOptions
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import LedgerError, MessageIllegalError, OutcomeUnknownError
from tests.process.test_state_log import broker_of
from tests.suite.patience import PATIENCE_S

OPTIONS = ProducerOptions(timeout_s=PATIENCE_S)
DAY_MS = 86_400_000
PAUSE_S = 0.05
"""Between two turns of a client: the nodes are to die under load, not of it."""

LATER, PLAIN, STORED = "later", "plain", "stored"
GROUP = "workers"
BEHIND_MAX = 1_000


class Load:
    """A client that does one thing again and again, until it is stopped or something is wrong."""

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        self.turns = 0
        self.failures: list[str] = []
        self.addresses = list(addresses)
        self.chance = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with self.client() as client:
                while not self._stop.is_set():
                    self.turn(client)
                    self.turns += 1
                    self._stop.wait(PAUSE_S)
        except (LedgerError, AssertionError) as error:
            # With all that it says: the words alone are the same for many causes.
            self.failures.append(f"{type(error).__name__}: {error}")

    def client(self) -> Any:
        """What it works with; a context."""
        return Producer(self.addresses, options=OPTIONS)

    def turn(self, client: Any) -> None:
        raise NotImplementedError


class Delayer(Load):
    """Sends messages for later, by level and by time, and takes some back.

    Attributes:
        due: bodies that have to come once.
        never: bodies that must not come: taken back, or far ahead.
        either: whose taking back was refused, or is doubtful: an attempt may have come through.
    """

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        super().__init__(addresses, seed)
        self.due: set[bytes] = set()
        self.never: set[bytes] = set()
        self.either: set[bytes] = set()

    def turn(self, client: Producer) -> None:
        futures = []
        for number in range(8):
            body = f"{self.turns}-{number}".encode()
            kind = self.chance.choice(("level", "level", "timer", "timer", "far", "cancelled"))
            how: dict[str, int] = {"delay_level": 1}
            if kind != "level":
                how = {"delay": DAY_MS if kind == "far" else self.chance.randrange(200, 3_000)}
            future = client.send(LATER, body, queue_id=number % 4, **how)
            futures.append((kind, body, future))
        for kind, body, future in futures:
            unique_id = future.result().unique_id
            if kind == "cancelled":
                self._cancel(client, body, unique_id)
            else:
                (self.never if kind == "far" else self.due).add(body)

    def _cancel(self, client: Producer, body: bytes, unique_id: str) -> None:
        try:
            client.cancel(unique_id)
        except (MessageIllegalError, OutcomeUnknownError):
            self.either.add(body)
        else:
            self.never.add(body)

    def check(self, stored: Counter[bytes]) -> None:
        """What the topic has, when all that is due has come."""
        assert max(stored.values()) == 1
        assert self.due <= stored.keys()
        assert not self.never & stored.keys()
        assert stored.keys() <= self.due | self.either

    def is_complete(self, stored: Counter[bytes]) -> bool:
        return self.due <= stored.keys()


class Sender(Load):
    """Sends messages that everybody may see."""

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        super().__init__(addresses, seed)
        self.sent: list[bytes] = []
        self.read: Callable[[], int] = lambda: len(self.sent)
        """How many of them the group has read: it is not to fall far behind."""

    def turn(self, client: Producer) -> None:
        if len(self.sent) - self.read() > BEHIND_MAX:
            return
        bodies = [f"{self.turns}-{number}".encode() for number in range(20)]
        futures = [
            client.send_batch(PLAIN, bodies[queue_id::4], queue_id=queue_id)
            for queue_id in range(4)
        ]
        for future in futures:
            future.result()
        self.sent += bodies


class Worker(Load):
    """A member of a group that commits what it reads, and gives one message in ten back, once.

    Attributes:
        seen: how often each message was read.
        given_back: bodies of which the broker has said so.
    """

    def __init__(self, addresses: Sequence[str], seed: int, name: str) -> None:
        super().__init__(addresses, seed)
        self.name = name
        self.seen: Counter[bytes] = Counter()
        self.given_back: set[bytes] = set()
        self.again: set[bytes] = set()

    def client(self) -> GroupConsumer:
        consumer = GroupConsumer(
            self.addresses,
            group=GROUP,
            name=self.name,
            group_options=GroupOptions(),
            options=ConsumerOptions(messages_max=50, hold_ms=200, timeout_s=PATIENCE_S),
        )
        consumer.subscribe(PLAIN)
        return consumer

    def turn(self, client: GroupConsumer) -> None:
        batch = client.poll(0.2)
        refused = []
        for message in batch:
            body = bytes(message.body)
            self.seen[body] += 1
            if message.reconsume_times:
                self.again.add(body)
            elif self.chance.random() < 0.1:
                refused.append(message)
        if refused:
            client.retry_later(*refused, delay_level=1)
            self.given_back |= {bytes(message.body) for message in refused}
        if len(batch):
            client.commit()


class Keeper(Load):
    """A group that stores each time how far it is; what was acknowledged is never less."""

    def __init__(self, addresses: Sequence[str], seed: int, queue_id: int) -> None:
        super().__init__(addresses, seed)
        self.acknowledged = 0
        self._queue_id = queue_id

    def client(self) -> Any:
        return broker_of(self.addresses)

    def turn(self, client: Any) -> None:
        wanted = self.acknowledged + 1
        client.group_commit("keepers", STORED, {self._queue_id: wanted})
        self.acknowledged = wanted
        known = client.group_offset("keepers", STORED)[self._queue_id]
        assert known == wanted, f"acknowledged {wanted}, then told {known}"


def wait_for_turns(loads: Sequence[Load], count: int, wait: Callable[..., object]) -> None:
    """Until each of the clients has done so much more, or has failed."""
    before = [load.turns for load in loads]
    wait(
        lambda: all(
            load.turns >= last + count or load.failures
            for load, last in zip(loads, before, strict=True)
        ),
        "all clients to go on",
        timeout_s=PATIENCE_S,
    )
