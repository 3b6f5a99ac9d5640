"""Snapshots of the broker's state, encoded and decoded in one go."""

from __future__ import annotations

from collections.abc import Sequence

from ledgermq.rules.state.state_commands import (
    Part,
    Snapshot,
    decode_snapshot_in_steps,
    encode_snapshot_in_steps,
)
from ledgermq.rules.tables.documents import finish


def encode_snapshot(snapshot: Snapshot) -> list[Part]:
    """The parts of a snapshot, in the order in which they must stand in the log."""
    return finish(encode_snapshot_in_steps(snapshot))


def decode_snapshot(parts: Sequence[Part]) -> Snapshot:
    """The snapshot of all its parts, in order.

    Raises:
        CorruptLogError: they are none.
    """
    return finish(decode_snapshot_in_steps(parts))
