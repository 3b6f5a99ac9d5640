"""Program: clients of every kind are made and used, and then a child is forked that uses them.

    python -m tests.process.forking_clients ADDRESS HOW

``HOW`` is ``fork`` or ``multiprocessing``. The child ends as any program does, with all that is
collected and finalized then. What both saw is printed, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ledgermq.client import Producer
from ledgermq.client.aio import AsyncConsumer, AsyncProducer
from ledgermq.model.errors import LedgerError
from tests.process.every_client import BLOCKING, TOPIC, verbs_of

PATIENCE_S = 100.0


def told(use: Callable[[], object]) -> str:
    """What using a client comes to: the kind of error."""
    try:
        use()
    except LedgerError as error:
        return type(error).__name__
    return "nothing"


async def told_awaited(use: Callable[[], Any]) -> str:
    """As ``told``."""
    try:
        await use()
    except LedgerError as error:
        return type(error).__name__
    return "nothing"


class Parent:
    """All clients, used once."""

    def __init__(self, address: str, how: str) -> None:
        self.address = address
        self.how = how
        self.clients = {kind.__name__: make(address) for kind, (make, _) in BLOCKING.items()}
        for kind, (_, use) in BLOCKING.items():
            use(self.clients[kind.__name__])
        self.producer: Any = self.clients["Producer"]
        self.send = self.producer.send
        self.future = self.producer.send(TOPIC, f"before {how}".encode())
        self.future.result()
        self.messages = iter(self.clients["Consumer"])
        next(self.messages)

    def links(self) -> list[int]:
        """Changes when a connection of the producer or the consumer ends."""
        consumer = self.clients["Consumer"]
        return [self.producer._pipeline.link.generation, consumer._link.generation]

    def be_child(self) -> dict[str, Any]:
        """What a child is told."""
        answers = {
            f"{name}.{verb}": told(getattr(client, verb))
            for name, client in self.clients.items()
            for verb in verbs_of(type(client))
        }
        answers["a verb that was looked up before"] = told(lambda: self.send(TOPIC, b"x"))
        answers["an iteration that was begun before"] = told(lambda: list(self.messages))
        for client in self.clients.values():
            with client:
                client.close()
        with Producer(self.address) as own:
            own.send(TOPIC, f"child {self.how}".encode()).result()
        return {"answers": answers}


def in_child(parent: Parent, output: int) -> None:
    """Tell, and drop everything."""
    document = parent.be_child()
    vars(parent).clear()
    gc.collect()
    with os.fdopen(output, "w") as file:
        json.dump(document, file)


def forked(parent: Parent, how: str) -> dict[str, Any]:
    """What a child tells, and its exit status."""
    source, target = os.pipe()
    if how == "multiprocessing":
        context = multiprocessing.get_context("fork")
        process = context.Process(target=in_child, args=(parent, target))
        process.start()
        os.close(target)
        with os.fdopen(source) as file:
            document = json.load(file)
        process.join(PATIENCE_S)
        return {**document, "status": process.exitcode}
    pid = os.fork()
    if not pid:
        signal.alarm(int(PATIENCE_S))
        os.close(source)
        in_child(parent, target)
        sys.exit(0)
    os.close(target)
    with os.fdopen(source) as file:
        document = json.load(file)
    _, status = os.waitpid(pid, 0)
    return {**document, "status": os.waitstatus_to_exitcode(status)}


async def from_a_loop(address: str) -> dict[str, Any]:
    """What a child is told that is forked in the midst of a loop."""
    async with AsyncProducer(address) as producer, AsyncConsumer(address, topic=TOPIC) as consumer:
        await producer.send(TOPIC, b"before")
        await consumer.poll(PATIENCE_S)
        source, target = os.pipe()
        pid = os.fork()
        if not pid:
            signal.alarm(int(PATIENCE_S))

            async def be_child() -> dict[str, str]:
                answers = {}
                for client in (producer, consumer):
                    for verb in verbs_of(type(client)):
                        name = f"{type(client).__name__}.{verb}"
                        answers[name] = await told_awaited(getattr(client, verb))
                await producer.close()
                consumer.close()
                return answers

            document = asyncio.run(be_child())
            with os.fdopen(target, "w") as file:
                json.dump({"answers": document}, file)
            os._exit(0)
        os.close(target)
        with os.fdopen(source) as file:
            document = json.load(file)
        _, status = os.waitpid(pid, 0)
        await producer.send(TOPIC, b"after")
        document["status"] = os.waitstatus_to_exitcode(status)
        return document


def main(address: str, how: str) -> None:
    """Fork, and use all once more."""
    if how == "loop":
        print(json.dumps(asyncio.run(from_a_loop(address))))
        return
    parent = Parent(address, how)
    before = parent.links()
    document = forked(parent, how)
    document["links"] = [before, parent.links()]
    for kind, (_, use) in BLOCKING.items():
        use(parent.clients[kind.__name__])
    for client in parent.clients.values():
        client.close()
    print(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
