"""Attributes of RocketMQ 5's topics, and the types that ``message.type`` gives to them."""

from __future__ import annotations

ATTRIBUTES = "attributes"
"""Where rows of topics and groups have what RocketMQ 5 calls their attributes."""

MESSAGE_TYPE = "message.type"
CLEANUP_POLICY, COMPACTION = "cleanup.policy", "COMPACTION"
"""An attribute of topics, and the value of those that keep the newest message of a key."""

UNSPECIFIED, BY_PRIORITY = "UNSPECIFIED", "PRIORITY"

TYPES = frozenset({"NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", BY_PRIORITY, "LITE"})
TYPES_OBEYED = TYPES - {"LITE"}
"""What gRPC clients may send goes by these, ``MIXED`` being the four before it; share groups go by
``PRIORITY``. Nobody can send ``LITE`` here.
"""
