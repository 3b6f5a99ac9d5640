"""Requesters, producers of transactions and admins in a cluster: one for each group that is used.

Those that send do it by the producers that a ``ProducerOfGroups`` has.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.requester import Requester
from ledgermq.client.blocking.transactions import TransactionalProducer
from ledgermq.client.broker_connection import TIMEOUT_S
from ledgermq.client.closing import Closing
from ledgermq.client.clusters.cluster_producer import ProducerOfGroups
from ledgermq.client.clusters.group_watch import ASKED_AGAIN_S, GroupWatch, WatchedGroup, seeds_of
from ledgermq.client.clusters.used_group import UsedGroup
from ledgermq.client.core.asked import Calls, MakesCalls, asked
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.sending.message_options import RequestOptions, check_options
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.request_reply import REQUEST_TIMEOUT_S
from ledgermq.model.errors import ConfigError, LedgerError, NotLeaderError

logger = logging.getLogger(__name__)

Client = TypeVar("Client", bound=Closing)
One = TypeVar("One")
Result = TypeVar("Result")

ANSWERS_S = 2.0
"""Connecting to a group that is there takes no longer, unless far more is wrong."""


class ClientsOfGroups(Closing, Generic[Client]):
    """One client for each group that is used; another one where a group has moved.

    Safe to share among threads.
    """

    def __init__(self, producer: ProducerOfGroups) -> None:
        """Clients that send by ``producer``, whose owner closes it."""
        self._producer = producer
        self._lock = threading.Lock()
        self._clients: dict[str, tuple[UsedGroup, Client]] = {}
        self._retired: list[Client] = []

    @abstractmethod
    def _make(self, used: UsedGroup) -> Client:
        """A client of one group; waits for nothing."""

    def groups(self) -> list[str]:
        """Names of the groups that are known now."""
        return self._producer.groups()

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
        """Close all."""
        with self._lock:
            clients = [*(client for _, client in self._clients.values()), *self._retired]
            self._clients.clear()
        for client in clients:
            client.close()


class ClusterRequests:
    """The verb of both forms of a cluster's requester."""

    @asked
    def request(
        self: Any,
        topic: str,
        body: Body,
        *,
        group: str = "",
        timeout: float = REQUEST_TIMEOUT_S,
        **options: Unpack[RequestOptions],
    ) -> Calls[ReceivedMessage]:
        """Send a request; the reply to it. See ``Requester.request``."""
        until = time.monotonic() + timeout
        check_options(options, RequestOptions, "request")
        requester = yield partial(
            self.chosen, topic, options, group=group, size=len(body), until=until
        )
        left = max(0.001, until - time.monotonic())
        reply: ReceivedMessage = yield partial(
            requester.request, topic, body, timeout=left, **options
        )
        return reply


class RequesterOfGroups(ClusterRequests, MakesCalls, ClientsOfGroups[Requester]):
    """What a ``Requester`` is in a cluster: it has one for each group that is asked."""

    def __init__(self, ordinary: Requester, _: KnownGroups) -> None:
        """A requester in the place of ``ordinary``, whose producer it sends by."""
        super().__init__(ordinary._producer.of_all)
        self._name = ordinary._name

    def _make(self, used: UsedGroup) -> Requester:
        return Requester(
            used.group.address, name=self._name, one_group=True, producer=used.producer
        )


class TransactionalProducerOfGroups(ClientsOfGroups[TransactionalProducer]):
    """What a ``TransactionalProducer`` is in a cluster: it has one for each group that is used.

    With a listener it has one for each group that answers, as any may ask it.
    """

    def __init__(self, ordinary: TransactionalProducer, _: KnownGroups) -> None:
        """A producer in the place of ``ordinary``, whose producer it sends by."""
        super().__init__(ordinary._producer.of_all)
        self._ordinary = ordinary
        self._closing = threading.Event()
        self._answering: threading.Thread | None = None
        if ordinary._listener is not None:
            self._answering = threading.Thread(
                target=self._listen, name=f"ledgermq-{ordinary._name}-groups", daemon=True
            )
            self._answering.start()

    def close(self) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        self._closing.set()
        if self._answering is not None:
            self._answering.join()
        super().close()

    def _make(self, used: UsedGroup) -> TransactionalProducer:
        like = self._ordinary
        return TransactionalProducer(
            used.group.address,
            group=like.group,
            listener=like._listener,
            name=like._name,
            options=like.options,
            tracing=like.tracing,
            one_group=True,
            producer=used.producer,
            course=like._course,
        )

    def _listen(self) -> None:
        """Have a producer in each group that answers: it may ask for what another one has left."""
        while True:
            for name in self._producer.answering():
                try:
                    self.of(name)
                except LedgerError as error:
                    # It may have left the cluster just now.
                    logger.warning("group is not listened to: group=%s: %s", name, error)
            if self._closing.wait(ASKED_AGAIN_S):
                return


class AdminsByName(ABC, Generic[One]):
    """Verbs of both forms of admins, whose kind is ``One``."""

    _groups: Callable[[], object]
    _admin: Callable[[WatchedGroup], object]

    @asked
    def groups(self) -> Calls[list[str]]:
        """Names of all groups of the cluster."""
        groups: list[WatchedGroup] = yield self._groups
        return [group.name for group in groups]

    @asked
    def of(self, group: str) -> Calls[One]:
        """The admin of a group; see ``Admin.of``."""
        groups: list[WatchedGroup] = yield self._groups
        for found in groups:
            if found.name == group:
                admin: One = yield partial(self._admin, found)
                return admin
        known = [one.name for one in groups]
        raise ConfigError("no such group is known", group=group, known=known)


class GroupAdmins(AdminsByName[Admin], MakesCalls, Closing):
    """The admins of all groups of a cluster; one thread at a time may use them."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        name: str = "admin",
        timeout_s: float = TIMEOUT_S,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Admins, which are made as they are asked for.

        Args:
            addresses, keys: as a ``ProducerOfGroups`` takes them.
            timeout_s: for each question, and to learn which groups there are.

        Raises:
            ConfigError: an address cannot be one, or there is none.
        """
        seeds = seeds_of(addresses)
        self._name = name
        self._timeout_s = timeout_s
        self._admins: dict[str, tuple[WatchedGroup, Admin]] = {}
        self._watch = GroupWatch(seeds, client=name, keys=keys)

    def each(self, order: Callable[[Admin], Result]) -> dict[str, Result | LedgerError]:
        """What each group says to an order; see ``Admin.each``."""
        found: dict[str, Result | LedgerError] = {}
        groups, now = self._groups(), time.monotonic()
        self._watch.wait_for_answers(now + min(ANSWERS_S, self._timeout_s))
        for group in groups:
            if not group.answers:
                found[group.name] = NotLeaderError("group does not answer", group=group.name)
                continue
            try:
                found[group.name] = order(self._admin(group))
            except LedgerError as error:
                found[group.name] = error
        return found

    def close(self) -> None:
        """Say goodbye to all nodes."""
        self._watch.close()
        for _, admin in self._admins.values():
            admin.close()

    def _groups(self) -> list[WatchedGroup]:
        return self._watch.wait_for_groups(time.monotonic() + self._timeout_s)

    def _admin(self, group: WatchedGroup) -> Admin:
        known = self._admins.get(group.name)
        if known is not None and known[0] is group:
            return known[1]
        admin = Admin(group.address, name=self._name, timeout_s=self._timeout_s)
        self._admins[group.name] = group, admin
        if known is not None:
            known[1].close()
        return admin
