"""Addresses of nodes: the endpoints of both sockets, and the keys, from one text."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from ledgermq.formats.records.host_address import Host
from ledgermq.model.errors import ConfigError

DEFAULT_ADDRESS = "ipc:///run/ledgermq"
SOCKET_PATH_MAX = 107
"""``sun_path`` holds 108 bytes, the last of them zero."""

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>[0-9]{1,5})")
_ANY_HOSTS = frozenset({"*", "0.0.0.0", "[::]"})  # noqa: S104 - compared with, never bound


class Address(NamedTuple):
    """Endpoints of one node; ``produce`` is empty when only the broker knows it.

    ``keys``: file of this client's keys (``client.core.keys``); empty: without.
    """

    consume: str
    produce: str
    keys: str = ""

    def produce_endpoint(self, told: str) -> str:
        """Endpoint of the writer.

        Args:
            told: what the broker's WELCOME says.

        Raises:
            ConfigError: the node has no such endpoint for this kind of connection.
        """
        if self.produce:
            return self.produce
        match = _TCP.fullmatch(told)
        if match is None:
            raise ConfigError(
                "node takes no messages over tcp: set listen.produce",
                consume=self.consume,
                produce=told,
            )
        if match["host"] not in _ANY_HOSTS:
            return told
        mine = _TCP.fullmatch(self.consume)
        assert mine is not None, self.consume
        return f"tcp://{mine['host']}:{match['port']}"


def parse_address(text: str) -> Address:
    """The endpoints of the node at ``text``.

    Args:
        text: ``ipc://`` and the node's runtime directory, or the ``tcp://HOST:PORT`` of its
            consume socket, with ``?keys=FILE`` behind it where the node asks for keys.

    Raises:
        ConfigError: it is neither.
    """
    if text.startswith("ipc://"):
        return _ipc(text)
    endpoint, mark, option = text.partition("?")
    match = _TCP.fullmatch(endpoint)
    name, _, keys = option.partition("=")
    if (
        match is None
        or not 0 < int(match["port"]) <= 65_535
        or (mark and (name != "keys" or not keys))
    ):
        raise ConfigError(
            "address is neither ipc://DIRECTORY nor tcp://HOST:PORT nor tcp://HOST:PORT?keys=FILE",
            address=text,
            example=DEFAULT_ADDRESS,
        )
    return Address(endpoint, "", keys)


def parse_addresses(addresses: str | Sequence[str]) -> list[Address]:
    """The endpoints of one node, or of several nodes of one group.

    Args:
        addresses: one for each node, as ``parse_address`` takes them; in a text divided by commas.

    Raises:
        ConfigError: one of them is no address, or there is none, or one stands twice.
    """
    texts = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    places = [parse_address(text.strip()) for text in texts]
    if not places:
        raise ConfigError("no address of a node", example=DEFAULT_ADDRESS)
    if len(set(places)) < len(places):
        raise ConfigError("the same node stands twice", addresses=texts)
    return places


def local_host(places: Sequence[Address]) -> Host:
    """This machine's own address towards the nodes; the loopback's when all are on this machine."""
    matches = [_TCP.fullmatch(place.consume) for place in places]
    match = next(filter(None, matches), None)
    if match is None:
        return "127.0.0.1", 0
    host = match["host"].strip("[]")
    try:
        # Connecting a datagram socket sends nothing, and shows the address that would be used.
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, int(match["port"]), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            name = str(probe.getsockname()[0])
    except OSError:
        # Only a note in the messages: whether the node can be reached shows elsewhere.
        return "127.0.0.1", 0
    return name.partition("%")[0], 0


def _ipc(text: str) -> Address:
    path = PurePosixPath(text.removeprefix("ipc://"))
    if not path.is_absolute():
        raise ConfigError("address names no absolute directory", address=text)
    size = len(str(path / "consume").encode())
    if size > SOCKET_PATH_MAX:
        raise ConfigError(
            "path too long for a unix socket", address=text, size=size, limit=SOCKET_PATH_MAX
        )
    return Address(f"ipc://{path}/consume", f"ipc://{path}/produce")
