"""Where the nodes of the group listen for RocketMQ's clients, and who is which broker id."""

from __future__ import annotations

from ledgermq.model.settings import Settings
from ledgermq.remoting.routes import LEADER_ID, BrokerAddresses


class GroupAddresses:
    """By the settings of this node: ``remoting.addresses``, else the peers' hosts and our port."""

    def __init__(self, settings: Settings) -> None:
        node = settings.node
        self._node = node
        self._addresses = {
            name: f"{address.rpartition(':')[0]}:{node.listen_port}"
            for name, _, address in (peer.partition("-") for peer in node.peers)
        }
        self._addresses[node.self_id] = self.own
        for entry in settings.remoting.addresses:
            name, _, address = entry.partition("-")
            self._addresses[name] = address

    @property
    def own(self) -> str:
        """This node's, as ``host:port``: the store host of its messages."""
        host, port = self._node.broker_ip, self._node.listen_port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def of(self, name: str) -> str | None:
        """Address of a member; None when the settings do not tell."""
        return self._addresses.get(name)

    def brokers(self, leader: str) -> BrokerAddresses:
        """The group as one broker name: ``leader`` is its master, all others are slaves.

        Args:
            leader: id of the member that leads; empty while nobody does, and there is no master.
        """
        found = {
            LEADER_ID if name == leader else broker_id(name): address
            for name, address in self._addresses.items()
        }
        return BrokerAddresses(self._node.broker_cluster_name, self._node.broker_name, found)


def broker_id(member: str) -> int:
    """A follower's: one more than its number, as DLedger's brokers have it."""
    return int(member[1:]) + 1
