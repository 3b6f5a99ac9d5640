"""Times and durations of the gRPC protocol, as milliseconds."""

from __future__ import annotations

from typing import Any


def epoch_ms(timestamp: Any) -> int:
    """Epoch milliseconds of a ``Timestamp``."""
    return int(timestamp.seconds) * 1_000 + int(timestamp.nanos) // 1_000_000


def duration_ms(duration: Any) -> int:
    """Milliseconds of a ``Duration``."""
    return int(duration.seconds) * 1_000 + int(duration.nanos) // 1_000_000


def timestamp_of(ms: int) -> dict[str, int]:
    """Fields of the ``Timestamp`` of epoch milliseconds."""
    return {"seconds": ms // 1_000, "nanos": ms % 1_000 * 1_000_000}


def duration_of(ms: int) -> dict[str, int]:
    """Fields of the ``Duration`` of so many milliseconds."""
    return {"seconds": ms // 1_000, "nanos": ms % 1_000 * 1_000_000}
