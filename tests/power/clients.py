"""Clients that live through power failures, and what each was told: it has to be true later.

They are threads of the test: the machines that fail are not theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledgermq.client import Admin, Consumer, DeadLetters, Producer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.retries import DEAD
from ledgermq.client.sending.outgoing import properties_bytes
from ledgermq.client.staging import SinkClient, StageWriter, staging_producer
from ledgermq.model.errors import LedgerError
from tests.process.group_nodes import TOPIC
from tests.process.service_load import (
    OPTIONS,
    Load,
)
from tests.suite.patience import PATIENCE_S

QUEUES = 4
DEAD_TOPIC, UNDERTAKERS = "letters", "undertakers"
SINK_TOPIC, SINK = "rows", "query"
ONCE_TOPIC = "once"

Place = tuple[int, int]
"""Queue and queue offset."""


class Writer(Load):
    """Sends to the topic, batches and single messages with keys, several at once.

    Attributes:
        acknowledged: bodies at the places that were told.
        attempted: all bodies that were ever sent.
    """

    def __init__(self, addresses: Sequence[str], seed: int, name: str, *, size: int = 600) -> None:
        super().__init__(addresses, seed)
        self.acknowledged: dict[Place, bytes] = {}
        self.attempted: set[bytes] = set()
        self._name = name
        self._size = size

    def client(self) -> Producer:
        return Producer(self.addresses, name=self._name, options=OPTIONS)

    def turn(self, client: Producer) -> None:
        under_way = []
        for part in range(self.chance.randint(1, 6)):
            queue = self.chance.randrange(QUEUES)
            bodies = [
                f"{self._name}-{self.turns}-{part}-{number} ".encode()
                + self.chance.randbytes(self.chance.randrange(self._size))
                for number in range(self.chance.choice((1, 1, 4, 10)))
            ]
            self.attempted.update(bodies)
            if len(bodies) > 1:
                future: Any = client.send_batch(TOPIC, bodies, queue_id=queue)
            else:
                keys = (f"{self._name}-{self.turns}",)
                future = client.send(TOPIC, bodies[0], queue_id=queue, keys=keys)
            under_way.append((bodies, future))
        for bodies, future in under_way:
            found = future.result()
            results = list(found) if len(bodies) > 1 else [found]
            for body, result in zip(bodies, results, strict=True):
                place = result.queue_id, result.queue_offset
                other = self.acknowledged.setdefault(place, body)
                assert other == body, f"{place} was acknowledged for {other!r} and for {body!r}"


class Resender(Load):
    """Sends with a unique id, and now and then the same again: it is told the same place.

    The topic ``ONCE_TOPIC`` has to know the ids of its messages (``deduplication_window_ms``).
    """

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        super().__init__(addresses, seed)
        self.acknowledged: dict[Place, bytes] = {}

    def turn(self, client: Producer) -> None:
        known = self.turns > 3 and self.chance.random() < 0.4
        number = self.chance.randrange(self.turns) if known else self.turns
        body, queue = b"once-%d" % number, number % 2
        result = client.send(ONCE_TOPIC, body, unique_id=f"{number:032X}", queue_id=queue).result()
        place = result.queue_id, result.queue_offset
        other = self.acknowledged.setdefault(place, body)
        assert other == body, f"{place} was acknowledged for {other!r} and for {body!r}"
        places = [one for one, content in self.acknowledged.items() if content == body]
        assert places == [place], f"{body!r} was acknowledged at {places}"


class Namer(Load):
    """Makes, changes and deletes topics, and makes groups.

    Attributes:
        queues: of each topic, as acknowledged last; 0 when it was deleted.
        doubtful: topics of which the last request was not answered.
        retries: ``retryMaxTimes`` of each group, as acknowledged.
    """

    def __init__(self, addresses: Sequence[str], seed: int, name: str = "n") -> None:
        super().__init__(addresses, seed)
        self.queues: dict[str, int] = {}
        self.doubtful: set[str] = set()
        self.retries: dict[str, int] = {}
        self._name = name

    def client(self) -> Admin:
        return Admin(self.addresses, timeout_s=PATIENCE_S)

    def turn(self, client: Admin) -> None:
        topic, queues = f"topic-{self._name}-{self.turns}", self.chance.randint(1, 8)
        group = f"group-{self._name}-{self.turns}"
        self.doubtful.add(topic)
        try:
            client.create_topic(topic, queues=queues)
            self.queues[topic] = queues
            if self.turns % 3 == 0:
                client.alter_topic(topic, queues=queues + 2)
                self.queues[topic] = queues + 2
            if self.turns % 5 == 0:
                client.delete_topic(topic)
                self.queues[topic] = 0
            self.doubtful.discard(topic)
            client.create_group(group, retryMaxTimes=self.turns + 1)
            self.retries[group] = self.turns + 1
        except LedgerError:
            # It may have happened or not: the next topic is another one.
            return
        finally:
            self._stop.wait(0.3)


class Burier(Load):
    """Has a message die, and replays it; once for each message, however often it asks.

    Attributes:
        sent: bodies that were acknowledged.
        dead: bodies of which was said that they are dead letters now.
        replayed: offsets of dead letters of which was said that they are replayed now, or were.
    """

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        super().__init__(addresses, seed)
        self.sent: list[bytes] = []
        self.dead: set[bytes] = set()
        self.replayed: set[int] = set()

    def turn(self, client: Producer) -> None:
        bodies = [b"%d-%d" % (self.turns, number) for number in range(3)]
        client.send_batch(DEAD_TOPIC, bodies, queue_id=0).result()
        self.sent += bodies
        options = ConsumerOptions(hold_ms=200, timeout_s=PATIENCE_S)
        with Consumer(
            self.addresses, topic=DEAD_TOPIC, group=UNDERTAKERS, retries=False, options=options
        ) as consumer:
            batch = consumer.poll(5.0)
            if len(batch):
                told = consumer.retry_later(*batch, delay_level=DEAD)
                assert all(one.is_dead for one in told), told
                self.dead |= {bytes(message.body) for message in batch}
                consumer.commit(batch)
        with DeadLetters(self.addresses, group=UNDERTAKERS, timeout_s=PATIENCE_S) as letters:
            for queue in letters.queues():
                held = range(queue.begin, queue.end)
                offsets = [offset for offset in held if offset not in self.replayed]
                if not offsets:
                    continue
                done = letters.replay(offsets)
                # One that was replayed by a request that got no answer is told of here.
                assert sorted([*done.replayed, *done.already]) == offsets, done
                again = letters.replay(offsets)
                assert (again.replayed, again.already) == ([], offsets), again
                self.replayed.update(offsets)


class Stager(Load):
    """Stages rows and commits them as a stream's batches, now and then twice.

    Attributes:
        rows: numbers of rows whose batch was committed.
        doubtful: of the batch that was under way.
    """

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        super().__init__(addresses, seed)
        self.rows: set[int] = set()
        self.doubtful: set[int] = set()

    def client(self) -> Producer:
        return staging_producer(self.addresses)

    def turn(self, client: Producer) -> None:
        batch = self.turns
        numbers = list(range(batch * 100, batch * 100 + self.chance.randint(1, 60)))
        self.doubtful = set(numbers)
        writer = StageWriter(client, SINK, batch, pack_bytes=4_096)
        for first in range(0, len(numbers), 10):
            some = numbers[first : first + 10]
            writer.add(
                SINK_TOPIC,
                first // 10 % QUEUES,
                [b"%d" % number for number in some],
                [properties_bytes(None, [], None) for _ in some],
                some,
            )
        staged = writer.finish()
        with SinkClient(self.addresses, timeout_s=PATIENCE_S) as sinks:
            for _ in range(self.chance.choice((1, 1, 2))):
                sinks.commit(SINK, batch, [staged])
        self.rows |= self.doubtful
