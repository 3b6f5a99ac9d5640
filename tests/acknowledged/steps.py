"""Many things that are asked of nodes at once, in one thread, and left alone when the nodes die.

What is asked is a generator, an *errand*: it yields something that is ``done()`` some day, and is
given its result, or its error. Clients that ask for themselves, each in a thread, would ask again
until they are answered; an errand that is abandoned has asked once, and nobody knows with what
outcome.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import zmq

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.core.requests import Request, RequestPipeline, call_request, call_result
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.remoting.command import Command
from tests.process.remoting_client import RemotingClient
from tests.suite.patience import PATIENCE_S

LOOK_S = 0.003
"""Nothing wakes who waits for a producer's answers: they are looked for this often."""

CONNECTIONS = 3
PORT_CONNECTIONS = 4


class Pending(Protocol):
    """What has a result some day."""

    def done(self) -> bool:
        """Whether it has one, or an error."""
        ...

    def result(self) -> Any:
        """The result. Raises what it is that went wrong."""
        ...


Errand = Generator[Pending, Any, None]


class Asked:
    """One CALL."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def done(self) -> bool:
        return self._request.done()

    def result(self) -> dict[str, Any]:
        return call_result(self._request)


class Pause:
    """Some time."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def done(self) -> bool:
        return time.monotonic() >= self._until

    def result(self) -> None:
        return None


class Connections:
    """To a node, or to the nodes of a group; a producer, and the port for RocketMQ's clients."""

    def __init__(self, addresses: Sequence[str], port: str | None, chance: random.Random) -> None:
        """Connect, once there is somebody; ``port`` is asked when it is first needed.

        Nodes that begin need not listen yet: none of this is a first contact, which would fail.
        """
        self._places = list(addresses)
        self._chance = chance
        context = zmq.Context.instance()
        self.pipelines = [
            RequestPipeline(
                broker_link(
                    context, parse_addresses(self._places), client=f"c{one}", is_watchful=False
                )
            )
            for one in range(CONNECTIONS)
        ]
        self._producer: Producer | None = None
        self._port = port
        self._threads: list[ThreadPoolExecutor] = []
        self._at_port: list[RemotingClient | None] = [None] * PORT_CONNECTIONS

    @property
    def has_port(self) -> bool:
        """Whether RocketMQ's clients can ask."""
        return self._port is not None

    @property
    def producer(self) -> Producer:
        """The producer, which waits for the node when it is asked for first."""
        if self._producer is None:
            options = ProducerOptions(timeout_s=PATIENCE_S)
            places = self._places if len(self._places) > 1 else self._places[0]
            self._producer = Producer(places, options=options, awaits_node=False)
            self._producer.form()
        return self._producer

    def ask(self, verb: str, **arguments: object) -> Asked:
        """A CALL, by any of the connections."""
        request = call_request(verb, arguments, deadline=time.monotonic() + PATIENCE_S)
        self._chance.choice(self.pipelines).ask(request)
        return Asked(request)

    def ask_port(self, code: int, fields: dict[str, object], body: bytes = b"") -> Future[Command]:
        """A request of RocketMQ's protocol."""
        if not self._threads:
            self._threads = [ThreadPoolExecutor(1) for _ in self._at_port]
        number = self._chance.randrange(PORT_CONNECTIONS)

        def ask() -> Command:
            client = self._at_port[number]
            if client is None:
                assert self._port is not None
                client = self._at_port[number] = RemotingClient(self._port)
            try:
                return client.ask(code, fields, body)
            except OSError:
                self._at_port[number] = None
                client.close()
                raise

        return self._threads[number].submit(ask)

    def advance(self) -> None:
        """Take what has come, send what may go; sleep a little when there is nothing."""
        poll = select.poll()
        for pipeline in self.pipelines:
            for descriptor in pipeline.link.descriptors:
                poll.register(descriptor, select.POLLIN)
        poll.poll(LOOK_S * 1_000)
        for pipeline in self.pipelines:
            pipeline.advance(time.monotonic())

    def close(self) -> None:
        """Ask nothing any more; what has no answer never gets one."""
        for pipeline in self.pipelines:
            pipeline.link.close()
        if self._producer is not None:
            self._producer.close(timeout=0)
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)
        for client in self._at_port:
            if client is not None:
                client.close()


class Errands:
    """Errands under way."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._under_way: list[tuple[Errand, Pending]] = []

    def begin(self, errand: Errand) -> None:
        """Have it go until it waits for something."""
        self._go_on(errand, lambda: next(errand))

    def run(self, until: float | None = None) -> None:
        """Go on until all are done, or until that time (monotonic).

        Raises:
            AssertionError: they are not done, although nobody said until when.
        """
        limit = time.monotonic() + 2 * PATIENCE_S if until is None else until
        while self._under_way and time.monotonic() < limit:
            self._connections.advance()
            ready = [one for one in self._under_way if one[1].done()]
            self._under_way = [one for one in self._under_way if one not in ready]
            for errand, pending in ready:
                self._give(errand, pending)
        assert until is not None or not self._under_way, "errands without an end"

    def abandon(self) -> None:
        """Leave all as they are."""
        for errand, _ in self._under_way:
            errand.close()
        self._under_way.clear()

    def _give(self, errand: Errand, pending: Pending) -> None:
        try:
            result = pending.result()
        except Exception as error:
            raised = error
            self._go_on(errand, lambda: errand.throw(raised))
        else:
            self._go_on(errand, lambda: errand.send(result))

    def _go_on(self, errand: Errand, step: Callable[[], Pending]) -> None:
        try:
            self._under_way.append((errand, step()))
        except StopIteration:
            return
