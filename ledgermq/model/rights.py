"""Rights to a topic or a group, as RocketMQ names them."""

from __future__ import annotations

from enum import IntFlag


class Right(IntFlag):
    """What may be done with a topic or as a group."""

    DENY = 0
    PUB = 1
    SUB = 2

    @property
    def text(self) -> str:
        """The right as RocketMQ writes it: ``PUB|SUB``, one of the two, or ``DENY``."""
        return "|".join(right.name or "" for right in (Right.PUB, Right.SUB) if right & self) or (
            "DENY"
        )
