"""Where the settings want the port to be, and what it bears."""

from __future__ import annotations

from ledgermq.gateway.remoting_sockets import Address, RemotingLimits
from ledgermq.model.settings import ListenSection, RemotingSection, TlsMode

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


def limits_of(settings: RemotingSection) -> RemotingLimits:
    """What the port bears."""
    return RemotingLimits(
        connections=settings.connections_max,
        idle_ms=settings.idle_ms,
        only_tls=settings.tls_mode is TlsMode.ENFORCING,
    )
