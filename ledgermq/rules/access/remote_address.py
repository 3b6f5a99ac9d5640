"""RocketMQ's patterns of remote addresses (``RemoteAddressStrategyFactory``), without a socket.

    (empty)                        nobody
    *, *.*.*.*, *:*:*:*:*:*:*:*    everybody
    10.0.0.7                       that one
    10.0.0.7,10.0.0.9              each of them
    10.0.0.{7,9}                   each of them
    10.0.0.*, 10.0.0.1-9           a range in the last part, or in one before and * behind it

IPv6 has the same with colons, its parts in hexadecimal. ``::ffff:10.0.0.7`` is 10.0.0.7.
"""

from __future__ import annotations

import re

from ledgermq.hosts.address_share import ip_of
from ledgermq.model.errors import ConfigError

_EVERYBODY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_BRACES = re.compile(r"(?P<before>[^{}]*)\{(?P<choices>[^{}]+)\}")


def matches(pattern: str, address: str) -> bool:
    """Whether ``address`` is one of those that ``pattern`` means."""
    return any(_matches_one(one, address) for one in _alternatives(pattern))


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that means no address.

    Raises:
        ConfigError: names the part that cannot be understood.
    """
    for one in _alternatives(pattern):
        parts, base = _parts(one)
        if one in _EVERYBODY or (
            len(parts) in (4, 8) and all(_bounds(part, base) is not None for part in parts)
        ):
            continue
        if ip_of(one) is not None:
            continue
        raise ConfigError(
            "not an address or a pattern of addresses",
            found=one,
            allowed="10.0.0.7  10.0.0.{7,9}  10.0.0.*  10.0.0.1-9  *",
        )


def _alternatives(pattern: str) -> list[str]:
    """The patterns without lists that ``pattern`` stands for."""
    pattern = pattern.strip()
    match = _BRACES.fullmatch(pattern)
    if match is not None:
        return [match["before"] + choice.strip() for choice in match["choices"].split(",")]
    return [one.strip() for one in pattern.split(",") if one.strip()]


def _matches_one(pattern: str, address: str) -> bool:
    if pattern in _EVERYBODY:
        return True
    found = ip_of(address.partition("%")[0])
    if found is None:
        return False
    wanted = ip_of(pattern)
    if wanted is not None:
        return wanted == found
    parts, base = _parts(pattern)
    theirs, their_base = _parts(found.exploded)
    if base != their_base or len(parts) != len(theirs):
        return False
    for part, one in zip(parts, theirs, strict=True):
        bounds = _bounds(part, base)
        if bounds is None or not bounds[0] <= int(one, base) <= bounds[1]:
            return False
    return True


def _parts(pattern: str) -> tuple[list[str], int]:
    """The parts, and the base of their numbers."""
    return (pattern.split(":"), 16) if ":" in pattern else (pattern.split("."), 10)


def _bounds(part: str, base: int) -> tuple[int, int] | None:
    """The least and the greatest number that ``part`` means, None when it means none."""
    highest = 255 if base == 10 else 0xFFFF
    if part == "*":
        return 0, highest
    low, dash, high = part.partition("-")
    try:
        first = int(low, base)
        last = int(high, base) if dash else first
    except ValueError:
        return None
    return (first, last) if 0 <= first <= last <= highest else None
