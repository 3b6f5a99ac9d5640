"""Vocabulary of transactions, shared by producers and brokers."""

from __future__ import annotations

from enum import StrEnum

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Half messages: stored, and in no consumer's sight before their transaction is committed."""

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Which half messages are done with."""

UNANSWERED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Half messages that no producer has answered for."""

MESSAGES_MAX = 200
"""Most messages of one transaction: what they become is one group in the log."""

SIZE_MAX = 8 * 1024 * 1024
"""Most bytes of the records of one transaction that has several messages, for the same reason."""


class Decision(StrEnum):
    """How a transaction ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
