"""Registration of this node with RocketMQ's name servers.

The leader is the broker with id 0, and tells of the topics; followers are its slaves. Each server
is told at once when the node's role or a topic changes, and every half minute; it has to answer,
and is asked again when it does not. A node that leads no more takes its address away from id 0 by
registering as a slave, never by unregistering id 0: that may be the next leader's already. When the
node ends its connection does, and with it the servers forget the address.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass

from ledgermq.gateway.administration.topic_codes import topic_table
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.transport.addresses import broker_id
from ledgermq.gateway.transport.server_links import ServerLinks
from ledgermq.model.errors import BusyError, LedgerError, TimedOutError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.routes import LEADER_ID
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)

PERIOD_MS = 30_000
SERVER_TIMEOUT_MS = 3_000
RETRY_MS = 500
RETRY_MS_MAX = 10_000


@dataclass(slots=True)
class _Server:
    """What one name server was told; ``told`` is None until it has answered."""

    address: str
    due_ms: int = 0
    is_asked: bool = False
    told: tuple[int, int] | None = None
    failures: int = 0


class Registrations(PortPart):
    """Owned by the port.

    Invariant: at most one registration is under way at each server.
    """

    def __init__(self, context: BrokerContext, links: ServerLinks) -> None:
        servers = context.environment.settings.remoting.name_servers
        self._servers = [_Server(address) for address in servers]
        self._links = links
        self._tables = context.tables
        self._addresses = context.addresses
        self._is_known = False

    def tell_standing(self, standing: Standing) -> None:
        """The node knows its role: from now on there is something to register."""
        self._is_known = True

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do that no descriptor tells of."""
        if not self._is_known:
            return None
        return min((one.due_ms for one in self._servers if not one.is_asked), default=None)

    def turn(self, now_ms: int) -> None:
        """Register wherever that is due, or something has changed since."""
        if not self._servers or not self._is_known:
            return
        state = self._state()
        for server in self._servers:
            has_changed = server.told is not None and server.told != state
            if not server.is_asked and (has_changed or now_ms >= server.due_ms):
                self._register(server, state, now_ms)

    def close(self) -> None:
        """Say goodbye where that cannot take the next leader's place; what can be sent is sent."""
        for server in self._servers:
            if server.told is None or (server.told[0] == LEADER_ID and self._is_in_group):
                continue
            fields = {**self._names(), "brokerId": str(server.told[0])}
            self._links.to(server.address).tell(Command(RequestCode.UNREGISTER_BROKER, 0, fields))

    @property
    def _is_in_group(self) -> bool:
        return len(self._addresses.brokers("").addresses) > 1

    def _state(self) -> tuple[int, int]:
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

    def _register(self, server: _Server, state: tuple[int, int], now_ms: int) -> None:
        wrapper = topic_table(self._tables)
        body = encode_body({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
        fields = {
            **self._names(),
            "brokerId": str(state[0]),
            "haServerAddr": self._addresses.own,
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFF_FFFF),
        }

        def take(outcome: Command | LedgerError) -> None:
            server.is_asked = False
            if isinstance(outcome, LedgerError) or outcome.code:
                self._fail(server, outcome, now_ms)
                return
            if server.told is None or server.told[0] != state[0]:
                logger.info(
                    "registered with a name server: address=%s broker_id=%d topics=%d",
                    server.address, state[0], len(self._tables.topics),
                )  # fmt: skip
            server.told, server.failures = state, 0
            server.due_ms = now_ms + PERIOD_MS

        server.is_asked = True
        command = Command(RequestCode.REGISTER_BROKER, 0, fields, body)
        link = self._links.to(server.address)
        try:
            link.ask(command, now_ms=now_ms, timeout_ms=SERVER_TIMEOUT_MS, take=take)
        except (BusyError, TimedOutError) as error:
            take(error)

    def _fail(self, server: _Server, outcome: Command | LedgerError, now_ms: int) -> None:
        """Try again, later and later; the first time of several is told."""
        why = str(outcome) if isinstance(outcome, LedgerError) else str(outcome.remark)
        if not server.failures:
            logger.warning(
                "name server does not take the registration: address=%s reason=%s",
                server.address, why,
            )  # fmt: skip
        server.failures += 1
        server.told = None
        wait_ms = min(RETRY_MS_MAX, RETRY_MS * 2 ** min(server.failures, 10))
        server.due_ms = now_ms + wait_ms
