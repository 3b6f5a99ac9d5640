"""Listening sockets of socket activation: systemd holds and passes them (sd_listen_fds(3)).

They are there while no process of the node is: who connects meanwhile waits in the kernel's queue
instead of being refused. The supervisor takes them over once, before it forks; every process that
is forked later has them, and opens a duplicate of its own by ``listener_at``. They all take from
one queue.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import MutableMapping
from contextlib import closing
from typing import NamedTuple

from ledgermq.hosts.host_name import host_and_port
from ledgermq.model.errors import ConfigError

FIRST_FD = 3
"""``SD_LISTEN_FDS_START``."""

VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class InheritedSocket(NamedTuple):
    """A socket of stream type that listens.

    Attributes:
        fd: stays open as long as the process lives; whoever serves it takes a duplicate.
        name: of the socket unit, unless its ``FileDescriptorName`` says something else.
        host: an address of this machine, or that of all.
        port: tcp.
    """

    fd: int
    name: str
    host: str
    port: int

    @property
    def text(self) -> str:
        """Where it listens, as the settings write it."""
        return host_and_port(self.host, self.port)


_taken: list[InheritedSocket] = []


def take_inherited(
    environment: MutableMapping[str, str], *, first_fd: int = FIRST_FD
) -> tuple[InheritedSocket, ...]:
    """Take over what systemd passed to this process; to be called once, before any fork.

    The variables are removed, so that no child takes them for its own, and no program that is
    started gets the sockets.

    Args:
        environment: variables of the process; sockets for another pid are left alone.
        first_fd: number of the first one.

    Raises:
        ConfigError: one of them is no tcp socket that listens.
    """
    _taken.clear()
    pid, count, names = (environment.pop(name, "") for name in VARIABLES)
    if pid != str(os.getpid()) or not count.isdecimal():
        return ()
    titles = names.split(":") if names else []
    fds = range(first_fd, first_fd + int(count))
    _taken.extend(
        _look_at(fd, titles[number] if number < len(titles) else "unknown")
        for number, fd in enumerate(fds)
    )
    return tuple(_taken)


def inherited_sockets() -> tuple[InheritedSocket, ...]:
    """What was taken over, in the unit's order; empty when systemd passed nothing."""
    return tuple(_taken)


def inherited_at(host: str, port: int) -> InheritedSocket | None:
    """The socket that listens at an address; None when the node has to bind it itself."""
    if not _taken:
        return None
    wanted = (_plain(host), port)
    return next((one for one in _taken if (one.host, one.port) == wanted), None)


def listener_at(host: str, port: int) -> socket.socket | None:
    """A duplicate of ``inherited_at``'s, non-blocking; the caller closes it, and only that.

    It must not be shut down: that would end the listening of all who have it.
    """
    found = inherited_at(host, port)
    if found is None:
        return None
    listener = socket.socket(fileno=os.dup(found.fd))
    listener.setblocking(False)
    return listener


def _look_at(fd: int, name: str) -> InheritedSocket:
    try:
        duplicate = socket.socket(fileno=os.dup(fd))
    except OSError as error:
        raise ConfigError(
            "descriptor that systemd passed is no socket",
            descriptor=fd,
            unit=name,
            reason=error.strerror,
        ) from error
    with closing(duplicate):
        is_tcp = (
            duplicate.family in (socket.AF_INET, socket.AF_INET6)
            and duplicate.type == socket.SOCK_STREAM
        )
        if not is_tcp or not duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ConfigError(
                "socket that systemd passed is no tcp socket that listens: its unit needs"
                " ListenStream=ADDRESS:PORT, and Accept=no",
                unit=name,
                family=duplicate.family.name,
                type=duplicate.type.name,
            )
        address = duplicate.getsockname()
    os.set_inheritable(fd, False)
    return InheritedSocket(fd, name, _plain(str(address[0])), int(address[1]))


def _plain(host: str) -> str:
    """One spelling for each address; a name is looked up, as it is when it is bound."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host
