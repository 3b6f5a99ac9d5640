"""Faults and counts of an audit by receipts, which ``pipeline/receipt_audit.py`` makes."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

FAULTS_MAX = 1_000
"""Faults that are told; more of them are counted."""


class ReceiptFaultKind(StrEnum):
    """What is wrong.

    CHANGED: messages are others than those that were signed.
    DAMAGED: they cannot be read.
    HISTORY: checkpoints are not signed, do not follow one another, or are of another history.
    """

    CHANGED = "changed"
    DAMAGED = "damaged"
    HISTORY = "history"


class ReceiptFault(NamedTuple):
    """Something that is not what was signed.

    Attributes:
        copy: where.
        topic, queue_id, first, end: the messages; ``topic`` is empty where it is about checkpoints.
    """

    copy: str
    kind: ReceiptFaultKind
    topic: str
    queue_id: int
    first: int
    end: int
    what: str

    def as_text(self) -> str:
        """One line for people."""
        place = "checkpoints"
        if self.topic:
            last = f" to {self.end - 1}" if self.end > self.first + 1 else ""
            place = f"{self.topic} {self.queue_id} {self.first}{last}"
        return f"{self.kind:<9} {self.copy}: {place}: {self.what}"


class AuditedCopy(NamedTuple):
    """What one copy has of what was signed.

    Attributes:
        messages: that are those that were signed.
        lacking: stretches of which it does not have all messages: those cannot be compared.
    """

    name: str
    messages: int
    lacking: int


class AuditedReceipts(NamedTuple):
    """The outcome.

    Attributes:
        at_ms: when the newest checkpoint was signed, epoch ms.
        untold: faults beyond ``FAULTS_MAX``.
    """

    checkpoints: int
    stretches: int
    at_ms: int
    copies: tuple[AuditedCopy, ...]
    faults: tuple[ReceiptFault, ...]
    untold: int
