"""System topics: names that a broker keeps for itself."""

from __future__ import annotations

from ledgermq.model.limits import FORBIDDEN_TOPICS

TEMPLATE_TOPIC = "TBW102"
SYSTEM_PREFIX = "rmq_sys_"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Where clients note the way of messages. Everybody who is known may write to it
(``PlainPermissionManager``)."""

SYSTEM_TOPICS = FORBIDDEN_TOPICS | {TEMPLATE_TOPIC, "BenchmarkTest", TRACE_TOPIC}
"""Names that no client may create (RocketMQ's ``TopicValidator`` and our own)."""

STATE_QUEUE_ID = 1
"""Queue of the system topic that has the commands which change the broker's tables."""

SNAPSHOT_TAG, PART_PROPERTY = "state-snapshot", "PART"
"""Tag of a part of a snapshot of those tables, and the property that says which part it is."""


def is_system_topic(name: str) -> bool:
    """Whether the name is reserved for the broker."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)
