"""Addresses of the group's nodes for RocketMQ's clients, and their broker ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping

from ledgermq.gateway.parts import PortPart
from ledgermq.hosts.host_name import host_and_port
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.process.systemd.port_addresses import ANYWHERE
from ledgermq.remoting.routes import LEADER_ID, BrokerAddresses
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)


class GroupAddresses(PortPart):
    """Addresses of the group: ``remoting.addresses``, else the hosts of the members and this node's
    port.

    Members are those of ``node.peers`` until the log says who they are: then those, as they are
    now. Witnesses and learners are left out: nothing can be read from them. So are, while somebody
    leads, members that give no sign of life to this node, as RocketMQ's name servers forget them.

    Attributes:
        leader: id of the member that leads; empty while none is known to.
    """

    def __init__(self, settings: Settings, absent: Callable[[], Container[NodeId]]) -> None:
        """No leader is known yet.

        Args:
            absent: members that have given no sign of life lately, at the time of the call.
        """
        node = settings.node
        self._absent = absent
        self.leader = ""
        self._node = node
        self._ha = settings.listen.ha
        self._told = {
            name: address
            for name, _, address in (entry.partition("-") for entry in settings.remoting.addresses)
        }
        self._members = StorePaths.of(settings).members
        self._seen: tuple[int, int] | None = None
        self._addresses = self._of(
            {name: address for name, _, address in (peer.partition("-") for peer in node.peers)}
            or {node.self_id: self.own}
        )

    def tell_standing(self, standing: Standing) -> None:
        """The leader is another one; nobody leads when the standing's ``leader`` is empty."""
        self.leader = standing.leader

    @property
    def leads(self) -> bool:
        """Whether this node does, as far as it knows."""
        return self.leader == self._node.self_id

    @property
    def of_leader(self) -> str | None:
        """Where the leader listens for RocketMQ's clients; None while none is known."""
        return self.of(self.leader) if self.leader else None

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self._node.broker_cluster_name

    @property
    def broker(self) -> str:
        """Name that all nodes of the group have together."""
        return self._node.broker_name

    @property
    def self_id(self) -> str:
        """This node's member id."""
        return self._node.self_id

    @property
    def own(self) -> str:
        """This node's, as ``host:port``: the store host of its messages."""
        return host_and_port(self._node.broker_ip, self._node.listen_port)

    @property
    def ha(self) -> str | None:
        """Where slaves of RocketMQ's get the log; None where they get none."""
        if self._ha is None:
            return None
        host, _, port = self._ha.rpartition(":")
        is_anywhere = host in ("*", ANYWHERE, "[::]")
        return host_and_port(self._node.broker_ip, int(port)) if is_anywhere else self._ha

    def of(self, name: str) -> str | None:
        """Address of a member; None when there is no such one."""
        return self._current().get(name)

    def has(self, address: str) -> bool:
        """Whether it is a member's."""
        return address in self._current().values()

    def brokers(self, leader: str) -> BrokerAddresses:
        """The group as one broker name: ``leader`` is its master, all others are slaves.

        Args:
            leader: id of the member that leads; empty while nobody does, and there is no master.
        """
        # Without a leader it may be this node that nobody hears.
        absent = self._absent() if leader else ()
        found = {
            LEADER_ID if name == leader else broker_id(name): address
            for name, address in self._current().items()
            if name == leader or name not in absent
        }
        return BrokerAddresses(self._node.broker_cluster_name, self._node.broker_name, found)

    def _current(self) -> Mapping[str, str]:
        """Read again when the file of the members is another one: changes of them are rare."""
        try:
            status = self._members.stat()
        except FileNotFoundError:
            return self._addresses
        seen = (status.st_mtime_ns, status.st_ino)
        if seen == self._seen:
            return self._addresses
        self._seen = seen
        try:
            entries = RosterFile(self._members).entries
        except (CorruptLogError, StorageError) as error:
            logger.warning("members of the group not read, routes stay as they are: %s", error)
            return self._addresses
        if entries:
            roster = entries[-1].roster
            shown = roster.membership.voters - roster.membership.witnesses
            self._addresses = self._of({str(one): roster.addresses[one] for one in shown})
        return self._addresses

    def _of(self, members: Mapping[str, str]) -> dict[str, str]:
        """Addresses for clients, from those among the members."""
        found = {
            name: f"{address.rpartition(':')[0]}:{self._node.listen_port}"
            for name, address in members.items()
        }
        if self._node.self_id in found:
            found[self._node.self_id] = self.own
        found.update({name: self._told[name] for name in found.keys() & self._told.keys()})
        return {name: found[name] for name in sorted(found)}


def broker_id(member: str) -> int:
    """A follower's: one more than its number, as DLedger's brokers have it."""
    return int(member[1:]) + 1
