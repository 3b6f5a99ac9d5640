"""A whole real node with a port for RocketMQ's clients."""

from __future__ import annotations

from typing import Any

from tests.process.client_node import start_client_node
from tests.process.conftest import Node
from tests.process.group_nodes import free_port


def start_remoting_node(
    node: Node, /, *, file_size: int = 1_048_576, **tables: dict[str, Any]
) -> str:
    """Serve topics ``orders`` and ``other`` with four queues each; address of the port."""
    port = free_port()
    listen = {**tables.pop("listen", {}), "remoting": f"127.0.0.1:{port}"}
    named = {**tables.pop("node", {}), "listen_port": port}
    access = {"admin_over_clients": True, **tables.pop("access", {})}
    start_client_node(node, file_size=file_size, listen=listen, node=named, access=access, **tables)
    return f"127.0.0.1:{port}"
