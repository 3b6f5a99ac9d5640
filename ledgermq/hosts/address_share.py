"""Shares of addresses: whose part of what there is for all a client of some address takes."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

PREFIX_V6 = 64
"""Bits of an IPv6 address that are one line's: whoever has one has all addresses behind them."""


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that ``text`` is; one of IPv4 that came as IPv6 (``::ffff:``) is that of IPv4.
    None: it is none.
    """
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


@lru_cache(4_096)
def share_of(address: str) -> str:
    """What addresses of one line have in common: the address itself, of IPv6 its /64, of IPv4 that
    came as IPv6 (``::ffff:``) the address in it; what is no address as it is.
    """
    found = ip_of(address.partition("%")[0])
    if found is None:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((found, PREFIX_V6), strict=False))
