"""Name service: the node as a name server, and its registration with RocketMQ's own."""

from __future__ import annotations

import select

from ledgermq.gateway.addresses import GroupAddresses
from ledgermq.gateway.changes import Changes, Reply
from ledgermq.gateway.leader_relay import LeaderRelay
from ledgermq.gateway.name_value_codes import NameValueCodes
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.registrations import Registrations
from ledgermq.gateway.requests import Codes
from ledgermq.gateway.route_codes import RouteCodes
from ledgermq.gateway.server_links import ServerLinks
from ledgermq.model.settings import Settings
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.wire.session import Standing


class NameService:
    """Who is where, for clients and for other name servers.

    Attributes:
        addresses: of the group's members.
        changes: what administrators have changed; a follower hands it to the leader.
    """

    def __init__(
        self,
        settings: Settings,
        tables: BrokerTables,
        calls: PortCalls,
        reply: Reply,
        *,
        epoll: select.epoll,
    ) -> None:
        """Nothing is registered before the node knows its role.

        Args:
            epoll: wakes the port.
        """
        self.addresses = GroupAddresses(settings)
        self.changes = Changes(calls, reply)
        self._routes = RouteCodes(tables, self.addresses)
        self._links = ServerLinks()
        epoll.register(self._links.fileno(), select.EPOLLIN)
        relay = LeaderRelay(self._links, self._routes, self.addresses, reply)
        self.changes.relay = relay
        self._routes.hand_on = relay.hand_on
        self._registrations = Registrations(
            settings.remoting.name_servers,
            links=self._links,
            tables=tables,
            addresses=self.addresses,
            routes=self._routes,
        )
        values = NameValueCodes(settings, tables, self.addresses, self.changes)
        self.codes: Codes = {**self._routes.codes, **values.codes}

    @property
    def leader(self) -> str:
        """Id of the member that leads; empty while none is known to."""
        return self._routes.leader

    def tell_standing(self, standing: Standing) -> None:
        """This node is something else in its group now, or another one leads."""
        self._routes.tell_standing(standing)
        self._registrations.tell_standing()

    def turn(self, now_ms: int) -> None:
        """Take what servers have answered, and register what is to be."""
        self._links.turn(now_ms)
        self._registrations.turn(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do that no descriptor tells of."""
        deadlines = (self._links.next_deadline_ms(), self._registrations.next_deadline_ms())
        return min((one for one in deadlines if one is not None), default=None)

    def close(self) -> None:
        """Say goodbye."""
        self._registrations.close()
        self._links.close()
