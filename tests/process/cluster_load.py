"""Program: a producer and a consumer of our library that use all groups of a cluster until told.

Words: its own name, a topic for keys, a topic for any queue, and addresses of nodes, one of a group
each. It prints what it was told, a line each, as ``cluster_history.py`` reads it; the programs of
RocketMQ's clients in ``tests/compat`` print the same. The line ``stop`` ends its producers, and the
end of what it is given all of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from ledgermq.client import Consumer, Producer, ProducerOptions, SendResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import LedgerError
from tests.process.cluster_history import KEYS, PLAIN, now_ms
from tests.suite.patience import PATIENCE_S

KEYED_PAUSE_S = 0.02
PLAIN_PAUSE_S = 0.02
UNDER_WAY_MAX = 500
"""Of the messages for any queue, which are sent without waiting for those before."""

COMMIT_S = 1.0


class Load:
    """What is sent, and what has come of it."""

    def __init__(self, name: str, producer: Producer, say: Callable[[str], None]) -> None:
        self.sent = 0
        self.stops = threading.Event()
        self._name = name
        self._producer = producer
        self._say = say
        self._lock = threading.Lock()

    def send_keyed(self, topic: str, key: int) -> None:
        """One after the other, each as often as needed until it is acknowledged."""
        number = 0
        while not self.stops.is_set():
            body = f"{self._name} {key} {number}".encode()
            self._count(1)
            while True:
                try:
                    self._producer.send(topic, body, queue_key=f"{self._name}-{key}").result()
                    break
                except LedgerError as error:
                    self._say(f"refused {now_ms()} {key} {error!r}")
                    time.sleep(KEYED_PAUSE_S)
            self._say(f"acked {topic} {key} {number} {now_ms()}")
            number += 1
            time.sleep(KEYED_PAUSE_S)

    def send_plain(self, topic: str) -> None:
        """At a steady pace, whatever has become of those before; what failed is sent again."""
        room = threading.BoundedSemaphore(UNDER_WAY_MAX)
        again: deque[int] = deque()
        number = 0

        def send(one: int) -> None:
            def note(future: SendFuture[SendResult]) -> None:
                error = future.exception()
                if error is None:
                    self._say(f"acked {topic} {PLAIN} {one} {now_ms()}")
                    room.release()
                else:
                    self._say(f"refused {now_ms()} {PLAIN} {error!r}")
                    again.append(one)

            body = f"{self._name} {PLAIN} {one}".encode()
            try:
                self._producer.send(topic, body, callback=note)
            except LedgerError as error:
                self._say(f"refused {now_ms()} {PLAIN} {error!r}")
                again.append(one)

        while not self.stops.is_set():
            if again:
                send(again.popleft())
            elif room.acquire(timeout=PLAIN_PAUSE_S):
                self._count(1)
                send(number)
                number += 1
            time.sleep(PLAIN_PAUSE_S)
        while room._value < UNDER_WAY_MAX:  # type: ignore[attr-defined]
            if again:
                send(again.popleft())
            time.sleep(PLAIN_PAUSE_S)

    def _count(self, count: int) -> None:
        with self._lock:
            self.sent += count


def consume(
    name: str, topic: str, addresses: list[str], ends: threading.Event, say: Callable[[str], None]
) -> None:
    """Read all of a topic, and note once a second what was read."""
    with Consumer(addresses, topic=topic, group=f"{name}-readers", name=name) as consumer:
        committed_at = time.monotonic()
        while not ends.is_set():
            try:
                batch = consumer.poll(0.2)
                group = batch.broker_group
                for one in batch:
                    place = f"{group} {one.queue_id} {one.queue_offset}"
                    say(f"read {topic} {bytes(one.body).decode()} {place} {now_ms()}")
                if time.monotonic() > committed_at + COMMIT_S:
                    committed_at = time.monotonic()
                    consumer.commit()
            except LedgerError as error:
                # A group that is away: it is read and noted when it is back.
                say(f"unread {now_ms()} {error!r}")


def main(name: str, keyed: str, plain: str, *addresses: str) -> None:
    """See the module."""

    def say(line: str) -> None:
        # In one call, so that lines of several threads are whole.
        os.write(sys.stdout.fileno(), f"{line}\n".encode())

    ends = threading.Event()
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with Producer([*addresses], name=name, options=options) as producer:
        load = Load(name, producer, say)
        senders = [
            threading.Thread(target=load.send_keyed, args=(keyed, key)) for key in range(KEYS)
        ]
        senders.append(threading.Thread(target=load.send_plain, args=(plain,)))
        readers = [
            threading.Thread(target=consume, args=(name, topic, [*addresses], ends, say))
            for topic in (keyed, plain)
        ]
        for thread in (*senders, *readers):
            thread.start()
        for line in sys.stdin:
            if line.strip() == "stop":
                load.stops.set()
                for thread in senders:
                    thread.join()
                say(f"stopped {load.sent}")
        ends.set()
        load.stops.set()
        for thread in (*senders, *readers):
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
