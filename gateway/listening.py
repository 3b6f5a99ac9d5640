"""Listening sockets of the port, by the settings, and its limits."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from ledgermq.gateway.remoting_sockets import Address, RemotingLimits
from ledgermq.model.errors import ConfigError
from ledgermq.model.settings import ListenSection, Settings, TlsMode
from ledgermq.process.inherited_sockets import inherited_at, inherited_sockets, listener_at

ANYWHERE = "0.0.0.0"  # noqa: S104 - bound when the operator has named no address
"""What ``*`` stands for."""

BACKLOG = 1_024


def listening_addresses(listen: ListenSection) -> list[Address]:
    """The broker's port and the name server's, as far as they are wanted: both answer all codes."""
    return list(addresses_by_setting(listen).values())


def addresses_by_setting(listen: ListenSection) -> dict[str, Address]:
    """The same, each by the setting that says so."""
    wanted = {"listen.remoting": listen.remoting, "listen.name_server": listen.name_server}
    found: dict[str, Address] = {}
    for setting, text in wanted.items():
        if text is not None:
            host, _, port = text.rpartition(":")
            found[setting] = (ANYWHERE if host == "*" else host.strip("[]"), int(port))
    return found


def limits_of(settings: Settings) -> RemotingLimits:
    """What the port bears."""
    remoting, limits = settings.remoting, settings.limits
    return RemotingLimits(
        connections=remoting.connections_max,
        connections_per_address=limits.connections_per_address,
        idle_ms=remoting.idle_ms,
        only_tls=remoting.tls_mode is TlsMode.ENFORCING,
        unread_bytes=limits.unread_replies_bytes,
        queued_bytes=limits.unread_replies_bytes_max,
        answers_bytes=limits.total_answers_bytes,
        unfinished_bytes=limits.total_unread_bytes,
    )


def check_inherited(listen: ListenSection) -> None:
    """See that each socket that systemd passed is one that the settings want.

    Raises:
        ConfigError: one listens elsewhere: clients would be let in, and nobody would answer.
    """
    expected = [inherited_at(host, port) for host, port in listening_addresses(listen)]
    for given in inherited_sockets():
        if given not in expected:
            raise ConfigError(
                "systemd listens for the node where its settings do not: let ListenStream= of the"
                " socket unit and listen.remoting name the same addresses",
                unit=given.name,
                listens_at=given.text,
                remoting=listen.remoting or "not set",
                name_server=listen.name_server or "not set",
            )


def open_listeners(
    addresses: Sequence[Address], *, are_shared: bool = False
) -> list[socket.socket]:
    """A socket that listens at each address: systemd's where it holds one, else one of our own.

    Args:
        are_shared: other processes of the node listen there, too, and the kernel chooses one of
            them for each client that connects.

    Returns:
        Non-blocking sockets, in the order of ``addresses``; the caller closes them.

    Raises:
        ConfigError: an address cannot be listened at.
    """
    found: list[socket.socket] = []
    try:
        for host, port in addresses:
            found.append(listener_at(host, port) or _listen(host, port, is_shared=are_shared))
    except ConfigError:
        for listener in found:
            listener.close()
        raise
    return found


def _listen(host: str, port: int, *, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(is_shared))
        listener.setblocking(False)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        with suppress(OSError):
            listener.close()
        raise ConfigError(
            "remoting port cannot be listened at",
            address=f"{host}:{port}",
            reason=error.strerror,
            setting="listen.remoting",
        ) from error
    return listener
