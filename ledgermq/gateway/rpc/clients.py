"""Connected gRPC clients: what they have said of themselves, and streams on which they are told.

A client is known by its first message of Telemetry, and by heartbeats. Nobody else is: what a call
needs of a client it says itself, so that a client whose settings are on their way, or were told to
another member, is answered all the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ledgermq.gateway.rpc.callers import RpcCaller
from ledgermq.model.errors import BusyError, NoPermissionError
from ledgermq.model.rights import Right

CLIENTS_MAX = 20_000
CLIENTS_PER_OWNER = 5_000
"""Clients that are remembered, of all and of one user or address; the one that was silent for
longest is forgotten for another."""

SILENT_S = 35.0
"""Heartbeats come every ten seconds; who has no stream, and is silent for so long, is gone."""

TOPICS_MAX = 1_024
TOPICS_PER_OWNER = 65_536
"""Topics that one producer may declare, and all of one user or address together."""

UNTOLD_MAX = 64
"""Commands that wait for one client to read."""


class RpcClient:
    """One client.

    Attributes:
        caller: who it is, as of its last call.
        declared: topics that it has declared to send to.
        topics: those of them that it may send to, as of its last call.
        heard_at: when it was heard last, by the loop's clock.
        streams: commands for it, a queue for each stream that it has here.
    """

    __slots__ = ("caller", "declared", "heard_at", "streams", "topics")

    def __init__(self, caller: RpcCaller, heard_at: float) -> None:
        self.caller = caller
        self.declared: frozenset[str] = frozenset()
        self.topics: frozenset[str] = frozenset()
        self.heard_at = heard_at
        self.streams: list[asyncio.Queue[Any]] = []

    @property
    def stream(self) -> asyncio.Queue[Any] | None:
        """The newest one, which takes the place of older ones; None: it has none here."""
        return self.streams[-1] if self.streams else None

    def may_send(self, topic: str) -> bool:
        """Whether it may send to ``topic`` now."""
        try:
            self.caller.check_topic(topic, Right.PUB)
        except NoPermissionError:
            return False
        return True

    def tell(self, command: Any) -> bool:
        """Have a command sent to it; false when it has no stream, or reads nothing."""
        stream = self.stream
        if stream is None or stream.full():
            return False
        stream.put_nowait(command)
        return True


class RpcClients:
    """Owned by the process's loop.

    Invariants: ``_clients`` are in the order in which they were heard last; ``_declared`` counts
    what those of each owner have declared.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """Nobody is known; ``now`` is the loop's clock, in seconds."""
        self._now = now
        self._clients: OrderedDict[tuple[str, str], RpcClient] = OrderedDict()
        self._owners: Counter[str] = Counter()
        self._declared: Counter[str] = Counter()
        self._turns: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def hear(self, caller: RpcCaller) -> RpcClient:
        """The client that has called; it is known from now on.

        Raises:
            BusyError: its owner has as many clients as it may, and all have streams.
        """
        key = caller.owner, caller.client_id
        client = self._clients.get(key)
        if client is None:
            self._make_room(caller.owner)
            client = self._clients[key] = RpcClient(caller, self._now())
            self._owners[caller.owner] += 1
        client.caller, client.heard_at = caller, self._now()
        client.topics = frozenset(filter(client.may_send, client.declared))
        self._clients.move_to_end(key)
        return client

    def declare(self, client: RpcClient, topics: frozenset[str]) -> None:
        """Take note of the topics that a client sends to, in place of those before.

        Raises:
            BusyError: its owner has declared too many.
        """
        owner = client.caller.owner
        if self.find(client.caller) is not client:
            # It has said goodbye on another call.
            return
        declared = self._declared[owner] + len(topics) - len(client.declared)
        if declared > TOPICS_PER_OWNER:
            raise BusyError("too many topics are declared", limit=TOPICS_PER_OWNER, owner=owner)
        self._declared[owner] = declared
        client.declared = topics
        client.topics = frozenset(filter(client.may_send, topics))

    def note_sender(self, caller: RpcCaller, topic: str) -> None:
        """A client begins a transaction in ``topic``: it is asked about it, also where it has not
        declared that, as far as it may declare more.
        """
        client = self.find(caller)
        if client is None or topic in client.declared or len(client.declared) >= TOPICS_MAX:
            return
        with suppress(BusyError):
            self.declare(client, client.declared | {topic})

    def find(self, caller: RpcCaller) -> RpcClient | None:
        """The client that has called, if it is known."""
        return self._clients.get((caller.owner, caller.client_id))

    def forget(self, caller: RpcCaller) -> None:
        """It has said goodbye; a stream that it has goes on to its end."""
        self._drop((caller.owner, caller.client_id))

    def expire(self) -> None:
        """Forget who is silent and has no stream."""
        until = self._now() - SILENT_S
        for key, client in list(self._clients.items()):
            if client.heard_at > until:
                return
            if client.stream is None:
                self._drop(key)
            else:
                self._clients.move_to_end(key)
                client.heard_at = self._now()

    def topics(self) -> set[str]:
        """Topics that producers with a stream have declared."""
        told = (client.topics for client in self._clients.values() if client.stream is not None)
        return set[str]().union(*told)

    def producers_of(self, topic: str) -> Iterator[RpcClient]:
        """Clients with a stream that have declared ``topic``, and may send to it; each call begins
        with another one.
        """
        found = [
            client
            for client in self._clients.values()
            if client.stream is not None and topic in client.topics and client.may_send(topic)
        ]
        if not found:
            self._turns.pop(topic, None)
            return
        turn = self._turns[topic] = (self._turns.get(topic, -1) + 1) % len(found)
        yield from found[turn:]
        yield from found[:turn]

    def _make_room(self, owner: str) -> None:
        mine = self._owners[owner] >= CLIENTS_PER_OWNER
        if not mine and len(self._clients) < CLIENTS_MAX:
            return
        for key, client in self._clients.items():
            if client.stream is None and (not mine or key[0] == owner):
                self._drop(key)
                return
        raise BusyError(
            "too many clients", limit=CLIENTS_PER_OWNER if mine else CLIENTS_MAX, owner=owner
        )

    def _drop(self, key: tuple[str, str]) -> None:
        client = self._clients.pop(key, None)
        if client is not None:
            self._owners[key[0]] -= 1
            self._declared[key[0]] -= len(client.declared)
            if not self._owners[key[0]]:
                del self._owners[key[0]], self._declared[key[0]]
