"""Hosts and ports as settings name them.

An address is one that every machine knows the host by: ``fe80::1`` means another one on each link.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from ledgermq.model.errors import ConfigError

HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[(?P<v6>[0-9A-Fa-f:.]+)\])"
PORT = r"(?P<port>[0-9]{1,5})"
V6_SAID = "IPv6 in brackets, no fe80::"
"""What a rule says of addresses of IPv6."""


def is_address(text: str) -> bool:
    """Whether ``text`` is an address of IPv4, or one of IPv6 that is more than a link's."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return found.version == 4 or not ("%" in text or found.is_link_local)


def has_port(pattern: str) -> Callable[[str], bool]:
    """Whether a text is what ``pattern``, in which ``HOST`` and ``PORT`` stand, means."""
    compiled = re.compile(pattern)

    def accepts(text: str) -> bool:
        match = compiled.fullmatch(text)
        if match is None or not 1 <= int(match["port"]) <= 65_535:
            return False
        return match["v6"] is None or is_address(match["v6"])

    return accepts


_takes_address = has_port(f"{HOST}:{PORT}")


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an address of IPv6 loses its brackets.

    Raises:
        ConfigError: it is not that.
    """
    if not _takes_address(text):
        raise ConfigError(f"not an address: HOST:PORT, {V6_SAID}", value=text[:300])
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
