"""Clients at chosen port processes of a real node."""

from __future__ import annotations

import ssl

import psutil

from tests.process.conftest import Node
from tests.process.remoting_client import RemotingClient

CONNECTIONS_MAX = 400
"""The kernel spreads connections by a hash of their ports: none of three is left out for long."""


def roles_of_ports(node: Node) -> list[str]:
    """The port processes of a node that are up."""
    return [role for role in node.pids() if role.startswith("port-")]


def role_of(node: Node, client: RemotingClient) -> str | None:
    """The port process that has taken a connection; None before one has."""
    for role in roles_of_ports(node):
        connections = psutil.Process(node.pid(role)).net_connections("tcp")
        if any(one.raddr and tuple(one.raddr) == client.address for one in connections):
            return role
    return None


def one_at_each(
    node: Node,
    address: str,
    *,
    signs: tuple[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> dict[str, RemotingClient]:
    """A client at each port process, in the order of their numbers."""
    wanted = roles_of_ports(node)
    found: dict[str, RemotingClient] = {}
    for _ in range(CONNECTIONS_MAX):
        client = RemotingClient(address, signs=signs, tls=tls)
        # Answered, so that it is known to have been accepted.
        client.ask(9_999)
        role = role_of(node, client)
        if role is None or role in found:
            client.close()
        else:
            found[role] = client
        if len(found) == len(wanted):
            return {role: found[role] for role in wanted}
    raise AssertionError(f"no connection went to one of {wanted}: {list(found)}")
