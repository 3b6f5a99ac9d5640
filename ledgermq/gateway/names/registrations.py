"""Registration of this node with name servers: RocketMQ's, and nodes of other groups.

The leader is the broker with id 0, and tells of the topics; followers are its slaves, and tell of
none. Each server is told at once when the node's role or a topic changes, or the connection has
ended, and is asked every half minute whether it still knows all that; it has to answer, and is
asked again when it does not. None is told before clients can connect. A node that leads no more
takes its address away from id 0 by registering as a slave, never by unregistering id 0: that may be
the next leader's already. When the node ends its connection does, and with it the servers forget
the address.

Behind a name all of its addresses are name servers. One that is gone from the name's records is let
go once its connection has ended: resolvers leave addresses out now and then.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from ledgermq.gateway.administration.encoded_tables import shown_fields
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.transport.addresses import broker_id
from ledgermq.gateway.transport.server_links import (
    Authorities,
    ServerLink,
    ServerLinks,
    is_address,
)
from ledgermq.hosts.host_name import HostName, host_and_port
from ledgermq.model.errors import BusyError, LedgerError, TimedOutError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.registration import WHOLE_KEY, encode_registration
from ledgermq.remoting.routes import LEADER_ID
from ledgermq.wire.session import Standing

ASK_MS = 60_000
"""Milliseconds between two questions for a name while its servers answer."""

DOUBT_MS, DOUBT_MS_MAX = 1_000, 10_000
"""The same while the name is not resolved, or a server does not answer: doubled each time."""


class NamedServers:
    """Owned by the port; nothing here waits.

    Attributes:
        addresses: of the latest answer that had some, each as ``links`` takes it.
    """

    def __init__(self, address: str, links: ServerLinks) -> None:
        """Nothing is asked yet.

        Args:
            address: ``NAME:PORT``.
            links: whose descriptor tells that an answer has come, too.
        """
        host, _, self._port = address.rpartition(":")
        self.addresses: tuple[str, ...] = ()
        self._name = HostName(host)
        self._links = links
        links.add_source(self._name.descriptor)
        self._answered_ms = 0
        self._ask_ms = 0
        self._pause_ms = DOUBT_MS
        self._failure = ""

    def next_deadline_ms(self) -> int | None:
        """When ``look`` has something to do that no descriptor tells of."""
        if not self._name.is_asked:
            return self._ask_ms
        return None if math.isinf(self._name.deadline) else math.ceil(self._name.deadline * 1_000)

    def look(self, now_ms: int) -> bool:
        """Take an answer, and ask when it is time; true when ``addresses`` are others."""
        name = self._name
        is_changed = name.take(now_ms / 1_000) and self._take_turn(now_ms)
        if not name.is_asked and now_ms >= self._ask_ms:
            name.ask(now_ms / 1_000)
        return is_changed

    def doubt(self) -> None:
        """A server has not answered: it may be at another address by now."""
        self._ask_ms = min(self._ask_ms, self._answered_ms + self._pause_ms)

    def close(self) -> None:
        """Ask no more."""
        self._links.remove_source(self._name.descriptor)
        self._name.close()

    def _take_turn(self, now_ms: int) -> bool:
        name = self._name
        if name.failure != self._failure:
            self._failure = name.failure
            if name.failure:
                logger.warning(
                    "name of name servers not resolved: name=%s reason=%s", name.name, name.failure
                )
        self._answered_ms = now_ms
        if name.failure:
            self._ask_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, DOUBT_MS_MAX)
            return False
        self._ask_ms = now_ms + ASK_MS
        addresses = tuple(host_and_port(one, self._port) for one in name.addresses)
        if addresses == self.addresses:
            self._pause_ms = min(2 * self._pause_ms, DOUBT_MS_MAX)
            return False
        self._pause_ms = DOUBT_MS
        self.addresses = addresses
        return True


logger = logging.getLogger(__name__)

PERIOD_MS = 30_000
SERVER_TIMEOUT_MS = 3_000
RETRY_MS = 500
RETRY_MS_MAX = 10_000


_NO_VERSION: dict[str, object] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
"""A follower's: when it leads, what it tells is news for every server."""

_State = tuple[int, int]


@dataclass(slots=True)
class _Server:
    """What one name server was told; ``told`` is None until it has answered.

    ``is_named``: a name stands for it, or did; else the settings have its address.
    """

    link: ServerLink
    is_named: bool = False
    due_ms: int = 0
    is_asked: bool = False
    told: _State | None = None
    failures: int = 0


class Registrations(PortPart):
    """Owned by the port.

    Invariant: at most one registration is under way at each server.
    """

    def __init__(self, context: BrokerContext, links: ServerLinks) -> None:
        remoting = context.environment.settings.remoting
        said, file = remoting.name_servers, remoting.name_servers_ca_file
        self._authorities = Authorities(file, "remoting.name_servers_ca_file") if file else None
        self._links = links
        self._servers = [_Server(self._link_to(one)) for one in said if is_address(one)]
        self._named = [NamedServers(one, links) for one in said if not is_address(one)]
        self._tables = context.tables
        self._addresses = context.addresses
        self._sockets = context.sockets
        self._is_known = False
        self._body: tuple[_State, bytes, dict[str, str]] | None = None

    def tell_standing(self, standing: Standing) -> None:
        """The node knows its role: from now on there is something to register."""
        self._is_known = True

    def next_deadline_ms(self) -> int | None:
        if not self._is_known or not self._sockets.can_be_reached:
            return None
        due = [one.due_ms for one in self._servers if not one.is_asked]
        asked = (one.next_deadline_ms() for one in self._named)
        return min((*due, *(one for one in asked if one is not None)), default=None)

    def turn(self, now_ms: int) -> None:
        """Register wherever that is due, or something has changed since."""
        if not self._is_known or not self._sockets.can_be_reached:
            return
        for named in self._named:
            if named.look(now_ms):
                self._find_servers(named)
        if not self._servers:
            return
        state = self._state()
        for server in list(self._servers):
            if server.is_asked:
                continue
            if server.link.fileno is None and self._is_gone(server):
                self._servers.remove(server)
                self._links.drop(server.link.address)
                continue
            if server.told is not None and server.link.fileno is None:
                # It has forgotten this node, or is a new process.
                server.told, server.due_ms = None, now_ms
            has_changed = server.told is not None and server.told != state
            if has_changed or now_ms >= server.due_ms:
                self._tell(server, state, now_ms)

    def _find_servers(self, named: NamedServers) -> None:
        """A name stands for other addresses than before."""
        known = {one.link.address: one for one in self._servers}
        for address in named.addresses:
            if address not in known:
                self._servers.append(_Server(self._link_to(address), is_named=True))

    def _link_to(self, address: str) -> ServerLink:
        return self._links.to(address, authorities=self._authorities)

    def _is_gone(self, server: _Server) -> bool:
        """Whether no name stands for it any more."""
        return server.is_named and not any(
            server.link.address in one.addresses for one in self._named
        )

    def close(self) -> None:
        """Say goodbye where that cannot take the next leader's place; what can be sent is sent."""
        for named in self._named:
            named.close()
        for server in self._servers:
            if server.told is None or (server.told[0] == LEADER_ID and self._is_in_group):
                continue
            fields = {**self._names(), "brokerId": str(server.told[0])}
            server.link.tell(Command(RequestCode.UNREGISTER_BROKER, 0, fields))

    @property
    def _is_in_group(self) -> bool:
        return len(self._addresses.brokers("").addresses) > 1

    def _state(self) -> _State:
        """What is registered: another one when a server has to be told."""
        leads = self._addresses.leads
        own = LEADER_ID if leads else broker_id(self._addresses.self_id)
        # Servers take topics from the one who leads alone.
        return own, self._tables.topics.changes if leads else 0

    def _names(self) -> dict[str, str]:
        addresses = self._addresses
        return {
            "brokerName": addresses.broker,
            "brokerAddr": addresses.own,
            "clusterName": addresses.cluster,
        }

    def _tell(self, server: _Server, state: _State, now_ms: int) -> None:
        if server.told == state:
            self._ask_whether_known(server, state, now_ms)
        else:
            self._register(server, state, now_ms)

    def _ask_whether_known(self, server: _Server, state: _State, now_ms: int) -> None:
        """Tell that the node lives; all that it has to tell, if the server does not know it."""
        fields = {**self._names(), "brokerId": str(state[0])}
        leads = state[0] == LEADER_ID
        version = self._tables.topics.data_version if leads else _NO_VERSION
        command = Command(RequestCode.QUERY_DATA_VERSION, 0, fields, encode_body(version))

        def take(reply: Command) -> None:
            if reply.code or reply.fields.get("changed", "").lower() != "false":
                server.told, server.due_ms = None, 0
                return
            server.failures, server.due_ms = 0, now_ms + PERIOD_MS

        self._ask(server, command, now_ms, take)

    def _register(self, server: _Server, state: _State, now_ms: int) -> None:
        body, about = self._encoded(state)
        fields = {
            **self._names(),
            **about,
            "brokerId": str(state[0]),
            "haServerAddr": self._addresses.ha or self._addresses.own,
            WHOLE_KEY: "true",
        }

        def take(reply: Command) -> None:
            if reply.code:
                self._fail(server, str(reply.remark), now_ms)
                return
            if server.told is None or server.told[0] != state[0]:
                logger.info(
                    "registered with a name server: address=%s broker_id=%d topics=%d",
                    server.link.address,
                    state[0],
                    len(self._tables.topics),
                )
            server.told, server.failures = state, 0
            server.due_ms = now_ms + PERIOD_MS

        self._ask(server, Command(RequestCode.REGISTER_BROKER, 0, fields, body), now_ms, take)

    def _ask(
        self, server: _Server, command: Command, now_ms: int, take: Callable[[Command], None]
    ) -> None:
        def told(outcome: Command | LedgerError) -> None:
            server.is_asked = False
            if isinstance(outcome, LedgerError):
                self._fail(server, str(outcome), now_ms)
            else:
                take(outcome)

        server.is_asked = True
        try:
            server.link.ask(command, now_ms=now_ms, timeout_ms=SERVER_TIMEOUT_MS, take=told)
        except (BusyError, TimedOutError) as error:
            told(error)

    def _encoded(self, state: _State) -> tuple[bytes, dict[str, str]]:
        """The body of a registration, made once for all servers."""
        if self._body is None or self._body[0] != state:
            if state[0] == LEADER_ID:
                topics = self._tables.topics
                table = {one.name: shown_fields(one) for one in topics if one.name != SYSTEM_TOPIC}
                made = encode_registration(topics.data_version, table)
            else:
                made = encode_registration(_NO_VERSION, {})
            self._body = state, *made
        return self._body[1], self._body[2]

    def _fail(self, server: _Server, why: str, now_ms: int) -> None:
        """Try again, later and later; the first time of several is told."""
        if not server.failures:
            logger.warning(
                "name server does not take the registration: address=%s reason=%s",
                server.link.address,
                why,
            )
        server.failures += 1
        server.told = None
        for named in self._named:
            if server.link.address in named.addresses:
                named.doubt()
        wait_ms = min(RETRY_MS_MAX, RETRY_MS * 2 ** min(server.failures, 10))
        server.due_ms = now_ms + wait_ms
