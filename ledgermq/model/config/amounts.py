"""Amounts of disk space in settings: bytes with a unit, or per cent of the disk.

A *watermark* in per cent is the share of the disk that is used, counted as RocketMQ counts it; in
bytes it is what is left free: "75%", or "200GiB" for less than that free.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_UNITS = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "": 0}
_PATTERN = re.compile(r"(\d{1,15})(%|B|KiB|MiB|GiB|TiB|)")


class FileSystem(NamedTuple):
    """A file system, in bytes; ``free`` is what an ordinary process may still take."""

    total: int
    used: int
    free: int

    @property
    def used_percent(self) -> int:
        """Per cent of the disk that are used, rounded up as RocketMQ does
        (``UtilAll.getDiskPartitionSpaceUsedPercent``)."""
        takable = self.used + self.free
        return -(-100 * self.used // takable) if takable else 100


class Amount(NamedTuple):
    """A number of bytes, or of per cent."""

    number: int
    is_percent: bool

    def of(self, total: int) -> int:
        """Bytes, of a disk of ``total``."""
        return total * self.number // 100 if self.is_percent else self.number

    def is_passed(self, disk: FileSystem) -> bool:
        """Whether more is used than this watermark allows, or less is free."""
        if self.is_percent:
            return disk.used_percent > self.number
        return disk.free < self.number

    def excess(self, disk: FileSystem) -> int:
        """Bytes to be deleted until this watermark is not passed any more; 0 when it is not."""
        if not self.is_passed(disk):
            return 0
        if not self.is_percent:
            return self.number - disk.free
        return disk.used - (disk.used + disk.free) * self.number // 100


def size_text(size: float) -> str:
    """Bytes for people, as 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1_024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_024
    return f"{size:,.1f} TiB"


def parse_amount(text: str) -> Amount | None:
    """The amount that ``text`` writes; None when it writes none."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    number, unit = int(match[1]), match[2]
    if unit == "%":
        return Amount(number, True) if number <= 100 else None
    return Amount(number << _UNITS[unit], False)


def amount(text: str) -> Amount:
    """The amount of a setting, whose rule has let it pass."""
    found = parse_amount(text)
    assert found is not None, text
    return found
