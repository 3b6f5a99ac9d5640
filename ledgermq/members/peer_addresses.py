"""Addresses of the group's members for one another, by ``node.peers``."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.hosts.host_name import is_name
from ledgermq.model.ids import NodeId


class PeerAddress(NamedTuple):
    """Where a member listens; ``host`` is a name or an address, an IPv6 one in brackets."""

    host: str
    port: int

    @property
    def endpoint(self) -> str:
        """The address in ZeroMQ's form, ``tcp://HOST:PORT``."""
        return f"tcp://{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """The host as a name; empty when it is an address."""
        return self.host if is_name(self.host) else ""

    def at(self, host: str) -> PeerAddress:
        """The same at a numeric address, which the name stands for."""
        return self._replace(host=f"[{host}]" if ":" in host else host)


def parse_peer(text: str) -> tuple[NodeId, PeerAddress]:
    """Id and address of a member as in ``node.peers``, whose form was checked with the settings."""
    name, _, address = text.partition("-")
    host, _, port = address.rpartition(":")
    return NodeId(name), PeerAddress(host, int(port))
