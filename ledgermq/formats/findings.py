"""Findings of a store check: a sentence each, with severity, place and remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """What a finding means for the operator.

    NOTE: nothing is wrong, or nothing that a node or broker would notice.
    DERIVED: files that can be made again from the log: ``ledgermq store rebuild``.
    DAMAGE: what only another member or a backup still has.
    """

    NOTE = "note"
    DERIVED = "derived"
    DAMAGE = "damage"


REBUILD = "ledgermq store rebuild"
FROM_PEER = "take the file from another member of the group, or from a backup"
FINDINGS_MAX = 100
"""Most findings of one kind that are told about one file: more of them say nothing more."""

START_MENDS = "the next start of the node mends it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be.

    Attributes:
        file: path below the store's folder.
        offset: first byte that it is about, from the file's begin; None for a whole file.
        what: the fault, in words.
        expected, found: values, None where there is none to tell.
        remedy: what an operator does; empty when nothing has to be done.
    """

    severity: Severity
    file: str
    offset: int | None
    what: str
    expected: object = None
    found: object = None
    remedy: str = ""

    def as_json(self) -> dict[str, object]:
        """One object of ``ledgermq store check --json``; keys are those of the attributes."""
        return {
            "severity": self.severity.value,
            "file": self.file,
            "offset": self.offset,
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
            "remedy": self.remedy,
        }

    def as_text(self) -> str:
        """One line for people."""
        place = self.file if self.offset is None else f"{self.file} at {self.offset}"
        values = ""
        if self.expected is not None or self.found is not None:
            values = f" (expected {self.expected}, found {self.found})"
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.severity.value:<7} {place}: {self.what}{values}{remedy}"


def worst(findings: Iterable[Finding]) -> Severity:
    """The gravest of all; NOTE when there is none."""
    order = (Severity.NOTE, Severity.DERIVED, Severity.DAMAGE)
    return max((finding.severity for finding in findings), key=order.index, default=Severity.NOTE)
