"""Topic names of a consumer group: RocketMQ's retry topic and dead-letter topic."""

from __future__ import annotations

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"


def retry_topic(group: str) -> str:
    """The topic that a group reads again what it could not process."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic of the messages that a group has given up."""
    return DEAD_LETTER_PREFIX + group
