"""Instants as users write them."""

from __future__ import annotations

from datetime import datetime

from ledgermq.model.errors import ConfigError


def parse_time(text: str, option: str) -> int:
    """A time that a user has written as epoch milliseconds.

    Args:
        text: those as a number, or ISO 8601, in local time unless it says another.
        option: what it was given for.

    Raises:
        ConfigError: it is no time.
    """
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError as error:
        raise ConfigError(
            f"{option} is no time", given=text, allowed="epoch ms, or as 2025-12-31T23:59"
        ) from error
