"""Six clients that mind their own business while others attack: what they get, and how late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ledgermq.client import Consumer, Producer, ProducerOptions, ShareConsumer
from ledgermq.remoting.codes import RequestCode
from tests.adversary.target import Target
from tests.process.http_client import get
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS, pull_fields, pulled
from tests.suite.patience import PATIENCE_S

OWN_TOPIC, PORT_TOPIC = "orders", "other"
SHARE_GROUP = "honest-shares"
HOST = "127.0.0.2"
"""From where RocketMQ's clients come: bounds of one address are not to reach them."""

PAUSE_S = 0.01


class HonestClients:
    """A producer, a consumer and a member of a share group on the unix sockets, two of RocketMQ's
    kind by tcp, and one who asks for health and metrics.

    Invariant: a number is in ``_sent`` once its message was acknowledged.
    """

    def __init__(self, local: str, target: Target) -> None:
        self._is_over = threading.Event()
        self._all_sent = threading.Event()
        self._sent: dict[str, set[int]] = {OWN_TOPIC: set(), PORT_TOPIC: set()}
        self._read: dict[str, set[int]] = {OWN_TOPIC: set(), PORT_TOPIC: set(), SHARE_GROUP: set()}
        self._waits: dict[str, list[float]] = {}
        self._failed: list[BaseException] = []
        self._local, self._remoting, self._target = local, target.port, target
        self._looked = 0
        acts = (self._produce, self._send, self._look, self._consume, self._pull, self._share)
        self._threads = [
            threading.Thread(target=self._guarded, args=[act], daemon=True) for act in acts
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        producers, consumers = self._threads[:3], self._threads[3:]
        for thread in producers:
            thread.join(PATIENCE_S)
        # A message may have been under way: only now nothing new is acknowledged.
        self._all_sent.set()
        for thread in consumers:
            thread.join(PATIENCE_S)

    def take_waits(self) -> dict[str, list[float]]:
        """Seconds that each act of each client took since this was asked last."""
        waits, self._waits = self._waits, {}
        return waits

    def wait_for_more(self, count: int) -> None:
        """Until so many more of each kind were read, and looks answered; raises what a client has
        met.
        """
        targets = {topic: len(read) + count for topic, read in self._read.items()}
        looked = self._looked + count
        until = time.monotonic() + PATIENCE_S
        while self._looked < looked or any(
            len(self._read[topic]) < wanted for topic, wanted in targets.items()
        ):
            self.check()
            assert time.monotonic() < until, {
                topic: len(read) for topic, read in self._read.items()
            }
            self._is_over.wait(PAUSE_S)

    def check(self) -> None:
        """Raise what a client has met."""
        if self._failed:
            raise AssertionError("an honest client was hurt") from self._failed[0]

    def missing(self) -> dict[str, set[int]]:
        """What was acknowledged and never read; to be asked when all has ended."""
        sent = {**self._sent, SHARE_GROUP: self._sent[OWN_TOPIC]}
        return {who: sent[who] - read for who, read in self._read.items()}

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            self._failed.append(error)

    def _note(self, who: str, begun: float) -> None:
        self._waits.setdefault(who, []).append(time.monotonic() - begun)

    def _produce(self) -> None:
        number = 0
        options = ProducerOptions(timeout_s=PATIENCE_S)
        with Producer(self._local, name="honest", options=options) as producer:
            while not self._is_over.wait(PAUSE_S):
                begun = time.monotonic()
                producer.send(OWN_TOPIC, _body(number)).result()
                self._note("producer", begun)
                self._sent[OWN_TOPIC].add(number)
                number += 1

    def _consume(self) -> None:
        with Consumer(self._local, topic=OWN_TOPIC, start="first", name="honest") as consumer:
            while not (self._all_sent.is_set() and not self.missing()[OWN_TOPIC]):
                for message in consumer.poll(0.2):
                    self._take(OWN_TOPIC, bytes(message.body), "consumer")
                if self._failed:
                    return

    def _share(self) -> None:
        with ShareConsumer(
            self._local, group=SHARE_GROUP, topic=OWN_TOPIC, timeout_s=PATIENCE_S
        ) as member:
            while not (self._all_sent.is_set() and not self.missing()[SHARE_GROUP]):
                messages = member.poll(0.2)
                for message in messages:
                    self._take(SHARE_GROUP, bytes(message.body), "share member")
                member.accept(*messages)
                if self._failed:
                    return

    def _send(self) -> None:
        number = 0
        client = RemotingClient(self._remoting, source=HOST)
        values = ("honest", PORT_TOPIC, "TBW102", 4, 0, 0, NOW_MS, 0, "", 0, "false")
        fields = dict(zip("abcdefghijk", values, strict=True))
        while not self._is_over.wait(PAUSE_S):
            begun = time.monotonic()
            reply = client.ask(RequestCode.SEND_MESSAGE_V2, fields, _body(number))
            assert reply.code == 0, reply
            self._note("remoting producer", begun)
            self._sent[PORT_TOPIC].add(number)
            number += 1
        client.close()

    def _look(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            for path in ("/health/live", "/metrics"):
                begun = time.monotonic()
                answer = get(
                    self._target.http,
                    path,
                    source=HOST,
                    authorization=f"Bearer {self._target.token}",
                )
                assert answer.status == 200, (path, answer)
                self._note(path, begun)
            self._looked += 1

    def _pull(self) -> None:
        offset = 0
        client = RemotingClient(self._remoting, source=HOST)
        while not (self._all_sent.is_set() and not self.missing()[PORT_TOPIC]):
            fields = pull_fields(
                PORT_TOPIC, 0, offset, suspend_ms=200, subscription="*", group="honest"
            )
            answer = pulled(client.ask(RequestCode.LITE_PULL_MESSAGE, fields))
            offset = max(offset, answer.next_offset)
            for body in answer.bodies:
                self._take(PORT_TOPIC, body, "remoting consumer")
            if self._failed:
                return
        client.close()

    def _take(self, topic: str, body: bytes, who: str) -> None:
        number, _, stamp = body.partition(b" ")
        # Others store messages there, too.
        if stamp:
            self._note(who, float(stamp))
            self._read[topic].add(int(number))


def _body(number: int) -> bytes:
    return f"{number} {time.monotonic()}".encode()
