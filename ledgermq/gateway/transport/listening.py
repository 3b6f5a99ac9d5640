"""Listening sockets of the port, and its limits."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from ledgermq.gateway.transport.remoting_sockets import Address, RemotingLimits
from ledgermq.model.config.settings import Settings, TlsMode
from ledgermq.model.errors import ConfigError
from ledgermq.process.systemd.inherited_sockets import listener_at
from ledgermq.store.files.descriptor_cache import connections_allowed

CONNECTIONS_PENDING_MAX = 1_024


def limits_of(settings: Settings) -> RemotingLimits:
    """What the port bears, as far as this process may open files."""
    remoting, limits = settings.remoting, settings.limits
    connections, share = connections_allowed(
        remoting.connections_max, limits.connections_per_address
    )
    return RemotingLimits(
        connections=connections,
        connections_per_address=share,
        idle_ms=remoting.idle_ms,
        only_tls=remoting.tls_mode is TlsMode.ENFORCING,
        unread_bytes=limits.unread_replies_bytes,
        queued_bytes=limits.unread_replies_bytes_max,
        answers_bytes=limits.total_answers_bytes,
        unfinished_bytes=limits.total_unread_bytes,
    )


def open_listeners(
    addresses: Sequence[Address], *, are_shared: bool = False, setting: str = "listen.remoting"
) -> list[socket.socket]:
    """A socket that listens at each address: systemd's where it holds one, else one of our own.

    Args:
        are_shared: other processes of the node listen there, too, and the kernel chooses one of
            them for each client that connects.
        setting: that names the addresses, for errors.

    Returns:
        Non-blocking sockets, in the order of ``addresses``; the caller closes them.

    Raises:
        ConfigError: an address cannot be listened at.
    """
    found: list[socket.socket] = []
    try:
        for host, port in addresses:
            found.append(
                listener_at(host, port) or _listen(host, port, setting, is_shared=are_shared)
            )
    except ConfigError:
        for listener in found:
            listener.close()
        raise
    return found


def _listen(host: str, port: int, setting: str, *, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(is_shared))
        listener.setblocking(False)
        listener.bind((host, port))
        listener.listen(CONNECTIONS_PENDING_MAX)
    except OSError as error:
        with suppress(OSError):
            listener.close()
        raise ConfigError(
            "port cannot be listened at",
            address=f"{host}:{port}",
            reason=error.strerror,
            setting=setting,
        ) from error
    return listener
