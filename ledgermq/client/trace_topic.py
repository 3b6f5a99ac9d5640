"""``TraceTopic``: RocketMQ's trace topic, written in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.closing import Closing
from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.sending.outgoing import topic_bytes
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import ConfigError, LedgerError, TimedOutError
from ledgermq.model.names.system_topics import TRACE_TOPIC

logger = logging.getLogger(__name__)

RECORDS_MAX = 8_192
RECORD_SIZE_MAX = 16 * 1024
"""Bytes of one record with its keys; RocketMQ's clients have no bound, but properties do."""

GATHER_S = 0.1
"""A record waits so long for others to share its message with."""

TOGETHER_MAX = 100
BODY_SIZE_MAX = 128_000
"""Records, and bytes of them, that RocketMQ's clients put into one message."""

KEYS_SIZE_MAX = 24 * 1024
"""Bytes of the keys of one message: all its properties have 32 KiB."""

STORED_WITHIN_S = 5.0
PAUSE_S = 1.0
"""After a failure: what cannot be written now can hardly be a moment later."""

WARN_S = 60.0
"""What is dropped is told of no more often."""


class _Record(NamedTuple):
    text: str
    keys: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.text.encode())

    @property
    def keys_size(self) -> int:
        return sum(len(key.encode()) + 1 for key in self.keys)


class TraceTopic(Closing):
    """Writes records of messages' ways where RocketMQ's tools look for them.

    Records are gathered, and written by a thread of its own. There is room for so many; what finds
    none, and what the broker does not take within five seconds, is dropped and counted. A client
    waits for nothing of it.

    Attributes:
        topic: where they are written.
        written: records that are stored.
        dropped: records that are not.
    """

    # Clients that are closed later may still tell of what they did.
    AFTER_CLOSE = frozenset({"flush", "put"})

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        topic: str = TRACE_TOPIC,
        records_max: int = RECORDS_MAX,
        name: str = "traces",
    ) -> None:
        """A topic to write to; it connects with the first record.

        Args:
            address: as a ``Producer`` takes it.
            topic: another one than RocketMQ's, whose tools have to be told of it.
            records_max: most records that wait.
            name: of this client, as the node's operator sees it.

        Raises:
            ConfigError: an argument cannot be used.
            MessageIllegalError: the topic cannot be one.
        """
        if records_max < 1:
            raise ConfigError("records_max out of range", value=records_max, minimum=1)
        parse_addresses(address)
        topic_bytes(topic)
        self._address = address
        self.topic = topic
        self._name = name
        self._records_max = records_max
        self._waiting: deque[_Record] = deque()
        self._news = threading.Condition()
        self._taken = 0
        self._is_closing = False
        self._closing = threading.Event()
        self._warned_at = 0.0
        self.written = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name=f"ledgermq-{name}", daemon=True)
        self._thread.start()

    def put(self, record: str, keys: Sequence[str]) -> None:
        """Have ``record`` written, so that it is found by ``keys``; at once, or never."""
        # What cannot be a key, of somebody's message, must not spoil the others' records.
        fit = tuple(key for key in keys if key and key.isprintable() and " " not in key)
        made = _Record(record, fit)
        with self._news:
            is_full = len(self._waiting) >= self._records_max
            if is_full or self._is_closing or made.size + made.keys_size > RECORD_SIZE_MAX:
                self.dropped += 1
                return
            self._waiting.append(made)
            if len(self._waiting) in (1, TOGETHER_MAX):
                self._news.notify_all()

    def flush(self, timeout: float = STORED_WITHIN_S) -> None:
        """Return when all records so far are written or dropped.

        Args:
            timeout: seconds.

        Raises:
            TimedOutError: some are neither; they stay under way.
        """
        with self._news:
            if not self._news.wait_for(lambda: not self._waiting and not self._taken, timeout):
                left = len(self._waiting) + self._taken
                raise TimedOutError("traces not written yet", records=left, waited_s=timeout)

    def close(self, timeout: float = STORED_WITHIN_S) -> None:
        """Write what waits, for at most ``timeout`` seconds; the rest is dropped."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
        self._closing.set()
        self._thread.join(timeout)
        with self._news:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _run(self) -> None:
        """The thread; it alone uses the producer."""
        producer: Producer | None = None
        while records := self._gathered():
            try:
                if producer is None:
                    options = ProducerOptions(timeout_s=STORED_WITHIN_S)
                    producer = Producer(
                        self._address, name=self._name, options=options, one_group=True
                    )
                self._write(producer, records)
            except LedgerError as error:
                self._settle(dropped=len(records), error=error)
                self._closing.wait(PAUSE_S)
            else:
                self._settle(written=len(records))
        if producer is not None:
            producer.close(0.0)

    def _gathered(self) -> list[_Record]:
        """The records of the next message; none when it is closed, and nothing waits."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._is_closing)
            self._news.wait_for(
                lambda: len(self._waiting) >= TOGETHER_MAX or self._is_closing, GATHER_S
            )
            records: list[_Record] = []
            body = keys = 0
            while self._waiting and len(records) < TOGETHER_MAX:
                one = self._waiting[0]
                body, keys = body + one.size, keys + one.keys_size
                if records and (body > BODY_SIZE_MAX or keys > KEYS_SIZE_MAX):
                    break
                records.append(self._waiting.popleft())
            self._taken = len(records)
            return records

    def _write(self, producer: Producer, records: Sequence[_Record]) -> None:
        body = "".join(one.text for one in records).encode()
        # Each once, in the order in which they came.
        keys = list(dict.fromkeys(key for one in records for key in one.keys))
        producer.send(self.topic, body, keys=keys).result()

    def _settle(
        self, *, written: int = 0, dropped: int = 0, error: LedgerError | None = None
    ) -> None:
        with self._news:
            self.written += written
            self.dropped += dropped
            self._taken = 0
            self._news.notify_all()
        now = time.monotonic()
        if error is not None and now >= self._warned_at:
            self._warned_at = now + WARN_S
            logger.warning("traces dropped: %d so far: %s", self.dropped, error)
