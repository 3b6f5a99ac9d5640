"""Queue name: topic and number."""

from __future__ import annotations

from typing import NamedTuple


class QueueName(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int
