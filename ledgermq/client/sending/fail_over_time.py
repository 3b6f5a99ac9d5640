"""Time of a group of a cluster to store what may fail over to another one."""

from __future__ import annotations

from ledgermq.model.errors import ConfigError

FAIL_OVER_S = 3.0
"""RocketMQ's time for a send, after which its producers try another broker."""

FAIL_OVER_S_MIN = 0.01


def checked_fail_over(seconds: float) -> float:
    """``seconds``, where a group may have so few.

    Raises:
        ConfigError: it may not.
    """
    if seconds < FAIL_OVER_S_MIN:
        raise ConfigError("fail_over_s out of range", value=seconds, minimum=FAIL_OVER_S_MIN)
    return seconds
