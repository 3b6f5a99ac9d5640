"""RocketMQ's delay levels (``messageDelayLevel``): level 1 is the first time named."""

from __future__ import annotations

from ledgermq.model.errors import ConfigError

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def delay_levels_ms(text: str) -> tuple[int, ...]:
    """Delay by level in milliseconds; item 0 stands for «not delayed».

    Raises:
        ConfigError: an item is not a number with s, m, h or d behind it.
    """
    delays = [0]
    for item in text.split():
        number, unit = item[:-1], item[-1]
        if unit not in _UNITS_MS or not (number.isascii() and number.isdecimal()):
            raise ConfigError("not a delay level", setting="store.message_delay_level", value=item)
        delays.append(int(number) * _UNITS_MS[unit])
    return tuple(delays)
