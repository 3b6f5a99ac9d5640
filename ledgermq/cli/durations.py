"""Times and sizes as options of commands have them: a number with a unit, or ``off``."""

from __future__ import annotations

from ledgermq.model.config.amounts import parse_amount
from ledgermq.model.errors import ConfigError

OFF = "off"
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONG_UNITS_MS = {**UNITS_MS, "w": 604_800_000, "y": 31_536_000_000}
"""A year has 365 days."""


def parse_duration(text: str, option: str, *, units: dict[str, int] = UNITS_MS) -> int:
    """Milliseconds; 0 of ``off``.

    Raises:
        ConfigError: it is no time.
    """
    if text == OFF:
        return 0
    number, unit = text.rstrip("".join(units)), text.lstrip("0123456789")
    if not number.isascii() or not number.isdecimal() or unit not in units:
        raise ConfigError(
            f"{option} is a number with a unit, or off", given=text, units=", ".join(units)
        )
    return int(number) * units[unit]


def parse_age(text: str, option: str) -> int:
    """The same, with weeks and years."""
    return parse_duration(text, option, units=LONG_UNITS_MS)


def parse_size(text: str, option: str) -> int:
    """Bytes; 0 of ``off``.

    Raises:
        ConfigError: it is no size.
    """
    if text == OFF:
        return 0
    found = parse_amount(text)
    if found is None or found.is_percent:
        raise ConfigError(f"{option} is a number of bytes, or off", given=text, allowed="500GiB")
    return found.number


def duration_text(duration_ms: int, *, units: dict[str, int] = UNITS_MS) -> str:
    """The time as ``parse_duration`` takes it, ``-`` for none."""
    if not duration_ms:
        return "-"
    unit = [one for one, size_ms in units.items() if duration_ms % size_ms == 0][-1]
    return f"{duration_ms // units[unit]}{unit}"
