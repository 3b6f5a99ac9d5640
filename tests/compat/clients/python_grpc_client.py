"""RocketMQ's Python gRPC client, run as a script: one step a line comes in, its outcome goes out.

    python_grpc_client.py ENDPOINTS [--key K --secret S] [--tls]

A process of its own: the client writes its log below HOME, and keeps threads. A step is a JSON
object with the name of a function of ``STEPS`` and its arguments; its outcome is one, too.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

RESOLUTIONS = {"commit": TransactionResolution.COMMIT, "rollback": TransactionResolution.ROLLBACK}


class Checker(TransactionChecker):  # type: ignore[misc]
    """Answers as a message's body says behind a colon; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: queue.Queue[dict[str, Any]] = queue.Queue()

    def check(self, message: Any) -> Any:
        self.asked.put({"body": message.body.decode(), "properties": dict(message.properties)})
        return RESOLUTIONS[message.body.decode().rpartition(":")[2]]


class Listener(MessageListener):  # type: ignore[misc]
    """Fails with each message so many times."""

    def __init__(self, fails: int, consumed: queue.Queue[dict[str, Any]]) -> None:
        self.fails = fails
        self.consumed = consumed
        self.failed: Counter[str] = Counter()

    def consume(self, message: Any) -> Any:
        self.failed[message.message_id] += 1
        if self.failed[message.message_id] <= self.fails:
            return ConsumeResult.FAILURE
        self.consumed.put({"body": message.body.decode(), "attempt": message.delivery_attempt})
        return ConsumeResult.SUCCESS


class Client:
    """The steps, and what they leave for later ones."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.producers: list[Any] = []
        self.consumers: list[Any] = []
        self.checker = Checker()
        self.consumed: queue.Queue[dict[str, Any]] = queue.Queue()
        self.transactions: list[Any] = []
        self.received: dict[str, Any] = {}

    def configuration(self) -> Any:
        credentials = Credentials(self.arguments.key, self.arguments.secret)
        return ClientConfiguration(self.arguments.endpoints, credentials)

    def start(self, topics: list[str]) -> dict[str, Any]:
        """A producer that declares these topics."""
        producer = Producer(
            self.configuration(), topics, checker=self.checker, tls_enable=self.arguments.tls
        )
        producer.startup()
        self.producers.append(producer)
        return {}

    def send(self, topic: str, body: str, **fields: Any) -> dict[str, Any]:
        """A message, normal, in order, or delayed."""
        receipt = self.producers[-1].send(message_of(topic, body, fields))
        return {
            "id": receipt.message_id,
            "offset": receipt.offset,
            "handle": receipt.recall_handle,
            "transaction": receipt.transaction_id,
        }

    def half(self, topic: str, body: str) -> dict[str, Any]:
        """A message of a transaction, which stays open."""
        transaction = self.producers[-1].begin_transaction()
        receipt = self.producers[-1].send(message_of(topic, body, {}), transaction)
        self.transactions.append(transaction)
        return {"id": receipt.message_id, "transaction": receipt.transaction_id}

    def end(self, how: str) -> dict[str, Any]:
        """End the oldest transaction that is open."""
        transaction = self.transactions.pop(0)
        getattr(transaction, how)()
        return {}

    def checked(self, wait_s: float) -> dict[str, Any]:
        """The next question about a transaction."""
        return self.checker.asked.get(timeout=wait_s)

    def recall(self, topic: str, handle: str) -> dict[str, Any]:
        """Take a message back."""
        return {"id": self.producers[-1].recall_message(topic, handle)}

    def consume(self, group: str, topic: str, **which: str) -> dict[str, Any]:
        """A simple consumer, of all or by tags or SQL."""
        consumer = SimpleConsumer(
            self.configuration(),
            group,
            {topic: filter_of(**which)},
            await_duration=2,
            tls_enable=self.arguments.tls,
        )
        consumer.startup()
        self.consumers.append(consumer)
        return {}

    def receive(self, count: int, invisible_s: int) -> dict[str, Any]:
        """Messages that nobody else has."""
        messages = self.consumers[-1].receive(count, invisible_s)
        self.received |= {one.message_id: one for one in messages}
        return {
            "messages": [
                {
                    "id": one.message_id,
                    "body": one.body.decode(),
                    "tag": one.tag,
                    "keys": list(one.keys),
                    "attempt": one.delivery_attempt,
                    "group": one.message_group,
                    "properties": dict(one.properties),
                }
                for one in messages
            ]
        }

    def ack(self, id: str) -> dict[str, Any]:
        """A message is done with."""
        self.consumers[-1].ack(self.received[id])
        return {}

    def invisible(self, id: str, seconds: int) -> dict[str, Any]:
        """A message is given back after so long."""
        self.consumers[-1].change_invisible_duration(self.received[id], seconds)
        return {}

    def push(self, group: str, topic: str, fails: int) -> dict[str, Any]:
        """A push consumer that fails with each message so many times."""
        consumer = PushConsumer(
            self.configuration(),
            group,
            Listener(fails, self.consumed),
            {topic: FilterExpression("*")},
            tls_enable=self.arguments.tls,
        )
        consumer.startup()
        self.consumers.append(consumer)
        return {}

    def pushed(self, wait_s: float) -> dict[str, Any]:
        """The next message that the push consumer has processed."""
        return self.consumed.get(timeout=wait_s)

    def stop(self) -> dict[str, Any]:
        """Say goodbye."""
        for one in (*self.producers, *self.consumers):
            one.shutdown()
        self.producers.clear()
        self.consumers.clear()
        return {}


def filter_of(expression: str = "*", sql: str | None = None) -> Any:
    if sql is None:
        return FilterExpression(expression)
    return FilterExpression(sql, FilterType.SQL)


def message_of(topic: str, body: str, fields: dict[str, Any]) -> Any:
    message = Message()
    message.topic, message.body = topic, body.encode()
    if "keys" in fields:
        message.keys = fields["keys"]
    if "tag" in fields:
        message.tag = fields["tag"]
    if "group" in fields:
        message.message_group = fields["group"]
    if "priority" in fields:
        message.priority = fields["priority"]
    if "delay_s" in fields:
        message.delivery_timestamp = int(time.time()) + fields["delay_s"]
    for name, value in fields.get("properties", {}).items():
        message.add_property(name, value)
    return message


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoints")
    parser.add_argument("--key", default="")
    parser.add_argument("--secret", default="")
    parser.add_argument("--tls", action="store_true")
    client = Client(parser.parse_args())
    for line in sys.stdin:
        asked = json.loads(line)
        step: Callable[..., dict[str, Any]] = getattr(client, asked.pop("step"))
        try:
            outcome = step(**asked)
        except Exception as error:
            outcome = {"error": type(error).__name__, "reason": str(error)}
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
