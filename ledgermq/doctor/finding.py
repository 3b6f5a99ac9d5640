"""Finding of a check: a verdict, what was measured, the limit, and what to change."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

PARTS = ("host", "limits", "disk", "clock", "ports", "keys", "peers", "levels", "settings", "store")
"""Parts of an examination, in the order in which they are told."""


class Weight(IntEnum):
    """The larger, the worse."""

    OK = 0
    WARN = 1
    FAIL = 2


class Diagnosis(NamedTuple):
    """One thing that was looked at.

    Attributes:
        check: ``group.name``, the same in every run.
        verdict: WARN: the node works, and worse than it could, or may not for long. FAIL: it does
            not work, or does not start.
        measured: what was found, with its unit.
        limit: what it should be; empty where nothing is too much.
        change: what to do; empty when all is well.
    """

    check: str
    verdict: Weight
    measured: str
    limit: str = ""
    change: str = ""


def ok(check: str, measured: str, *, limit: str = "") -> Diagnosis:
    """All is well."""
    return Diagnosis(check, Weight.OK, measured, limit)


def warn(check: str, measured: str, *, limit: str = "", change: str) -> Diagnosis:
    """Works, but …"""
    return Diagnosis(check, Weight.WARN, measured, limit, change)


def fail(check: str, measured: str, *, limit: str = "", change: str) -> Diagnosis:
    """Does not work."""
    return Diagnosis(check, Weight.FAIL, measured, limit, change)


class Check(NamedTuple):
    """One thing that is looked at, and what it should be; how it is says a finding.

    Attributes:
        name: ``group.name``.
    """

    name: str
    limit: str

    def ok(self, measured: str) -> Diagnosis:
        """All is well."""
        return ok(self.name, measured, limit=self.limit)

    def warn(self, measured: str, change: str) -> Diagnosis:
        """Works, but …"""
        return warn(self.name, measured, limit=self.limit, change=change)

    def fail(self, measured: str, change: str) -> Diagnosis:
        """Does not work."""
        return fail(self.name, measured, limit=self.limit, change=change)


def worst(findings: list[Diagnosis]) -> Weight:
    """The verdict about the whole."""
    return max((finding.verdict for finding in findings), default=Weight.OK)
