"""Addresses of the group's members for one another, by ``node.peers``."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.model.ids import NodeId


class PeerAddress(NamedTuple):
    """Where a member listens; ``host`` is a name or an address, an IPv6 one in brackets."""

    host: str
    port: int

    @property
    def endpoint(self) -> str:
        """As ZeroMQ writes it."""
        return f"tcp://{self.host}:{self.port}"


def parse_peer(text: str) -> tuple[NodeId, PeerAddress]:
    """Id and address of a member as in ``node.peers``, whose form was checked with the settings."""
    name, _, address = text.partition("-")
    host, _, port = address.rpartition(":")
    return NodeId(name), PeerAddress(host, int(port))
