"""Where the settings want the port to be."""

from __future__ import annotations

from ledgermq.gateway.remoting_sockets import Address
from ledgermq.model.settings import ListenSection

ANYWHERE = "0.0.0.0"
"""What ``*`` stands for."""


def listening_addresses(listen: ListenSection) -> list[Address]:
    """The broker's port and the name server's, as far as they are wanted: both answer all codes."""
    found: list[Address] = []
    for text in (listen.remoting, listen.name_server):
        if text is not None:
            host, _, port = text.rpartition(":")
            found.append((ANYWHERE if host == "*" else host.strip("[]"), int(port)))
    return found
