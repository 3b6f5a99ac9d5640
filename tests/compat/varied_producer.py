"""A producer of many kinds of messages, which notes what it was told; run as a script.

    varied_producer.py ADDRESS NAME COUNT TOPIC,… JOURNAL

Each line of the journal is one acknowledged message in the form in which the real broker's answers
are kept (``*.json.xz``), so far as a producer knows them; ``born`` has the two times between which
the message was made.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ledgermq.client import OutgoingMessage, Producer, ProducerOptions, SendResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.config.settings import AckMode
from tests.suite.patience import PATIENCE_S

QUEUES = 4
BATCH_MAX = 40
BATCH_EVERY = 10
KEY_SHARED_BY = 10
ACKNOWLEDGED_WITHIN_S = 120.0

# Characters of one to three bytes, and two tags that have the same hash.
TAGS = (None, "TagA", "標籤", "AaAa", "BBBB")
BORN_HOST = "127.0.0.1"

Json = dict[str, Any]


class Sent(NamedTuple):
    """Messages of one call, and the times around it."""

    messages: Sequence[OutgoingMessage]
    future: SendFuture[Any]
    begin_ms: int
    end_ms: int


class Load:
    """The messages of one producer; the same ones in every run, but for times and unique ids."""

    def __init__(self, name: str, topics: Sequence[str]) -> None:
        self._name = name
        self._topics = topics
        self._random = random.Random(name)
        self._number = 0

    def send(self, producer: Producer, count: int) -> Iterator[Sent]:
        """Send ``count`` messages; what each call was given and what will come of it."""
        while self._number < count:
            is_batch = self._random.randrange(BATCH_EVERY) == 0
            rows = min(self._random.randint(2, BATCH_MAX) if is_batch else 1, count - self._number)
            messages = [self._message() for _ in range(rows)]
            topic = self._random.choice(self._topics)
            begin = now_ms()
            future: SendFuture[Any]
            if is_batch:
                queue_id = self._random.randrange(QUEUES)
                future = producer.send_batch(topic, messages, queue_id=queue_id)
            else:
                future = self._send_one(producer, topic, messages[0])
            yield Sent(messages, future, begin, now_ms())

    def _send_one(
        self, producer: Producer, topic: str, message: OutgoingMessage
    ) -> SendFuture[SendResult]:
        where: Json = self._random.choice(
            ({}, {"queue_key": message.keys[0]} if message.keys else {}, {"queue_id": QUEUES - 1})
        )
        return producer.send(
            topic, message.body, tag=message.tag, keys=message.keys,
            properties=message.properties, flag=message.flag, **where,
        )  # fmt: skip

    def _message(self) -> OutgoingMessage:
        number, draw = self._number, self._random
        self._number += 1
        keys: list[str] = []
        if number % 5 == 0:
            keys = [f"{self._name}-{number // (5 * KEY_SHARED_BY)}"]
        if number % 50 == 0:
            keys.append(f"ключ-{self._name}-{number}")
        properties = {"number": str(number), "producer": self._name}
        if number % 7 == 0:
            properties |= {"unicode": "héllo 世界 \x7f", "empty-looking": " "}
        return OutgoingMessage(
            body=self._body(number),
            tag=draw.choice(TAGS),
            keys=keys,
            properties=properties if number % 3 else None,
            flag=draw.randint(-(2**31), 2**31 - 1) if number % 11 == 0 else 0,
        )

    def _body(self, number: int) -> bytes:
        draw = self._random
        if number % 2_500 == 17:
            size = draw.randint(100_000, 300_000)
        elif number % 97 == 0:
            size = draw.randint(4_000, 9_000)
        else:
            size = draw.randint(1, 600)
        return draw.randbytes(size) if number % 2 else bytes([97 + number % 26]) * size


def now_ms() -> int:
    """This machine's clock, epoch ms."""
    return time.time_ns() // 1_000_000


def documents(sent: Sent) -> Iterator[Json]:
    """What is known of the messages of one call, once they are acknowledged."""
    outcome = sent.future.result(ACKNOWLEDGED_WITHIN_S)
    results = [outcome] if isinstance(outcome, SendResult) else outcome
    for message, result in zip(sent.messages, results, strict=True):
        assert result.ack is AckMode.MAJORITY_MEMORY
        properties = dict(message.properties or {}) | {"UNIQ_KEY": result.unique_id}
        if message.tag is not None:
            properties["TAGS"] = message.tag
        if message.keys:
            properties["KEYS"] = " ".join(message.keys)
        yield {
            "readTopic": result.topic,
            "readQueue": result.queue_id,
            "topic": result.topic,
            "queue": result.queue_id,
            "queueOffset": result.queue_offset,
            "physicalOffset": result.physical_offset,
            "sysFlag": 0,
            "flag": message.flag,
            "bodyCrc": zlib.crc32(message.body) & 0x7FFF_FFFF,
            "born": [sent.begin_ms, sent.end_ms],
            "storeTimestamp": result.store_timestamp,
            "bornHost": BORN_HOST,
            "reconsumeTimes": 0,
            "preparedTransactionOffset": 0,
            "msgId": result.unique_id,
            "offsetMsgId": result.offset_message_id,
            "bodyLength": len(message.body),
            "bodyMd5": hashlib.md5(message.body, usedforsecurity=False).hexdigest(),
            "properties": properties,
        }


def main() -> None:
    address, name, count, topics, journal = sys.argv[1:]
    # What is compressed is tested by itself: these messages have the sizes that they say.
    options = ProducerOptions(compress_above=None, timeout_s=PATIENCE_S)
    with Producer(address, name=name, options=options) as producer:
        # Kept until all are sent, so that noting them does not slow the sending.
        sent = list(Load(name, topics.split(",")).send(producer, int(count)))
        with open(journal, "w", encoding="utf-8") as file:
            for call in sent:
                file.writelines(json.dumps(document) + "\n" for document in documents(call))


if __name__ == "__main__":
    main()
