"""Clients of one group each, which send by the producers that a ``ProducerOfGroups`` has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.sending.message_options import RequestOptions


class Closed(Protocol):
    """What is closed at the end."""

    def close(self) -> None:
        """Say goodbye."""


Client = TypeVar("Client", bound=Closed)


class GroupClients(Generic[Client]):
    """One client for each group that is used; another one where a group has moved.

    Safe to share among threads.
    """

    def __init__(self, producer: ProducerOfGroups, make: Callable[[UsedGroup], Client]) -> None:
        """``make`` waits for nothing."""
        self._producer = producer
        self._make = make
        self._lock = threading.Lock()
        self._clients: dict[str, tuple[UsedGroup, Client]] = {}
        self._retired: list[Client] = []

    def of(self, group: str) -> Client:
        """The client of a group.

        Raises:
            ConfigError: no such group is known.
        """
        used = self._producer.used(group)
        with self._lock:
            known = self._clients.get(group)
            if known is not None and known[0] is used:
                return known[1]
            if known is not None:
                # What it has under way comes to its end where the group was.
                self._retired.append(known[1])
            client = self._make(used)
            self._clients[group] = used, client
            return client

    def chosen(
        self, topic: str, options: RequestOptions, *, group: str, until: float, size: int = 0
    ) -> Client:
        """The client of the group that a message would go to; see ``ProducerOfGroups.choose``."""
        used = self._producer.choose(topic, options, group=group, until=until, size=size)
        return self.of(used.group.name)

    def close(self) -> None:
        """Close all, and then the producers."""
        with self._lock:
            clients = [*(client for _, client in self._clients.values()), *self._retired]
            self._clients.clear()
        for client in clients:
            client.close()
