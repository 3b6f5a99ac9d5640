"""Addresses of nodes: the endpoints of both sockets, and the keys, from one text."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from ledgermq.formats.records.host_address import Host, plain_address
from ledgermq.hosts.host_name import is_name
from ledgermq.model.errors import ConfigError

DEFAULT_ADDRESS = "ipc:///run/ledgermq"
SOCKET_PATH_MAX = 107
"""``sun_path`` holds 108 bytes, the last of them zero."""

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>[0-9]{1,5})")
_PORT = re.compile(r"tcp://(?:\[[^\]]+\]|[^:/\[\]]+):([^:/]+)")
_ANY_HOSTS = frozenset({"*", "0.0.0.0", "[::]"})  # noqa: S104 - compared with, never bound
_RESOLVE = re.compile(r"(?:(?P<before>.+)&)?resolve_s=(?P<seconds>[0-9]{1,6})")

RESOLVE_S = 60
"""A name is asked for anew after so long, where nothing has failed meanwhile."""

RESOLVE_S_MAX = 86_400
_ELSEWHERE = "192.0.2.1"
"""No host has it (RFC 5737): the way there is the one to all that is not near."""


class Address(NamedTuple):
    """Endpoints of one node; ``produce`` is empty when only the broker knows it.

    A name in the place of a host stands for as many nodes as it has addresses. ``keys``: file of
    this client's keys (``client.core.keys``); empty: without. ``resolve_s``: after so many seconds
    a name is asked for anew.
    """

    consume: str
    produce: str
    keys: str = ""
    resolve_s: int = RESOLVE_S

    @property
    def name(self) -> str:
        """The name that stands for the node's host, or for several; empty: it has an address."""
        match = _TCP.fullmatch(self.consume)
        return match["host"] if match is not None and is_name(match["host"]) else ""

    def at(self, host: str) -> Address:
        """The same at a numeric address, which the name stands for."""
        match = _TCP.fullmatch(self.consume)
        assert match is not None, self.consume
        host = f"[{host}]" if ":" in host else host
        return self._replace(consume=f"tcp://{host}:{match['port']}")

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
                "no address for messages over tcp is told here: the node has none (listen.produce),"
                " or it is the one given, and clients are given that of listen.consume",
                consume=self.consume,
                produce=told,
            )
        if match["host"] not in _ANY_HOSTS and not is_name(match["host"]):
            return told
        mine = _TCP.fullmatch(self.consume)
        assert mine is not None, self.consume
        return f"tcp://{mine['host']}:{match['port']}"


def parse_address(text: str) -> Address:
    """The endpoints of the node at ``text``.

    Args:
        text: ``ipc://`` and the node's runtime directory, or the ``tcp://HOST:PORT`` of its
            consume socket, with ``?keys=FILE`` behind it where the node asks for keys. Where
            HOST is a name, ``resolve_s=SECONDS`` (``?`` or ``&`` before it) stands last.

    Raises:
        ConfigError: it is neither.
    """
    if text.startswith("ipc://"):
        return _ipc(text)
    endpoint, mark, option = text.partition("?")
    resolve_s = RESOLVE_S
    resolving = _RESOLVE.fullmatch(option)
    if resolving is not None:
        resolve_s = int(resolving["seconds"])
        option = resolving["before"] or ""
        mark = option
        if not 1 <= resolve_s <= RESOLVE_S_MAX:
            raise ConfigError(
                "resolve_s out of range", address=text, minimum=1, limit=RESOLVE_S_MAX
            )
    match = _TCP.fullmatch(endpoint)
    port = _PORT.fullmatch(endpoint)
    if port is not None and not (port[1].isdecimal() and 0 < int(port[1]) <= 65_535):
        raise ConfigError("port is no number from 1 to 65535: tcp://HOST:PORT", address=text)
    name, _, keys = option.partition("=")
    if match is None or (mark and (name != "keys" or not keys)):
        raise ConfigError(
            "address is neither ipc://DIRECTORY nor tcp://HOST:PORT nor tcp://HOST:PORT?keys=FILE"
            " (resolve_s=SECONDS stands last)",
            address=text,
            example="tcp://[::1]:10922" if "::" in endpoint else DEFAULT_ADDRESS,
        )
    if match["host"] == "*":
        raise ConfigError(
            "a node listens at this address; name the host to connect to", address=text
        )
    return Address(endpoint, "", keys, resolve_s)


def parse_addresses(addresses: str | Sequence[str]) -> list[Address]:
    """The endpoints of one node, or of several nodes of one group.

    Args:
        addresses: one for each node, as ``parse_address`` takes them; in a text divided by commas.

    Raises:
        ConfigError: one of them is no address, or there is none, or one stands twice.
    """
    texts = addresses.split(",") if isinstance(addresses, str) else address_texts(addresses)
    places = [parse_address(text.strip()) for text in texts]
    if not places:
        raise ConfigError("no address of a node", example=DEFAULT_ADDRESS)
    if len(set(places)) < len(places):
        raise ConfigError("the same node stands twice", addresses=texts)
    return places


def address_texts(addresses: Sequence[str]) -> list[str]:
    """The texts of a list of addresses.

    Raises:
        ConfigError: it is none, or one of them is no text.
    """
    texts = list(addresses) if isinstance(addresses, Iterable) else [addresses]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError("address is not a text", addresses=addresses, example=DEFAULT_ADDRESS)
    return texts


def local_host(places: Sequence[Address]) -> Host:
    """This machine's own address towards the nodes; the loopback's when all are on this machine.

    Towards nodes of which the names alone are known: the one towards what is not near. Nothing is
    looked up, which could take long.
    """
    matches = [_TCP.fullmatch(place.consume) for place in places]
    match = next(filter(None, matches), None)
    if match is None or match["host"] == "localhost":
        return "127.0.0.1", 0
    host = match["host"].strip("[]")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            _ELSEWHERE if is_name(host) else host,
            int(match["port"]),
            type=socket.SOCK_DGRAM,
            flags=socket.AI_NUMERICHOST,
        )[0]
        # Connecting a datagram socket sends nothing, and shows the address that would be used.
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            name = str(probe.getsockname()[0])
    except OSError:
        # Only a note in the messages: whether the node can be reached shows elsewhere.
        return "127.0.0.1", 0
    return plain_address(name).partition("%")[0], 0


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
