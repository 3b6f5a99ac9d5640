"""Units of amounts: bytes, milliseconds, nanoseconds."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

HOUR_MS = 3_600_000

MS_NS = 1_000_000
