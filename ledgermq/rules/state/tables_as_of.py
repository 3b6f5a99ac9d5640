"""The broker's tables as of a place in the log: the nearest snapshot before it, and all commands
between.

Each leader begins with a snapshot of all tables (docs/decisions/0012), and takes others in a long
term, so there is one not far before any place. What stands before the snapshot is not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledgermq.model.errors import LedgerError, MessageUnknownError, NewerVersionError
from ledgermq.rules.state.broker_state import BrokerState


class StateMessage(NamedTuple):
    """A message of the state's queue.

    Attributes:
        offset: in that queue.
        label: its property ``PART``; empty without one.
        body: as stored.
    """

    offset: int
    tag: str
    label: str
    body: bytes


class TablesAsOf(NamedTuple):
    """All tables, and which messages of the state's queue they are made of.

    Attributes:
        snapshot: queue offset where the snapshot begins.
        applied: behind the last message that is in them.
    """

    state: BrokerState
    snapshot: int
    applied: int


def replayed(messages: Iterable[StateMessage], snapshot: int) -> TablesAsOf | None:
    """The tables after ``messages``, which begin where a snapshot does; None where that is not
    whole, because they end in its middle, or its leader did.

    A command that cannot be applied changes nothing, as on every node.

    Raises:
        NewerVersionError: a newer version wrote one of them.
    """
    state = BrokerState({})
    state.begin_at(snapshot, snapshot)
    # What is before counts as missing, also where the queue's first message is the snapshot's.
    state.needs_snapshot = True
    applied = snapshot
    for message in messages:
        try:
            state.apply(message.offset, message.tag, message.label, message.body)
        except NewerVersionError:
            raise
        except LedgerError:
            state.pass_over(message.offset)
        applied = message.offset + 1
    return TablesAsOf(state, snapshot, applied) if state.snapshots else None


def no_snapshot(snapshots: Sequence[int]) -> MessageUnknownError:
    """The error where no snapshot that is whole stands before the place that is asked for."""
    return MessageUnknownError(
        "no snapshot of the broker's tables is that old: the first moment is later",
        first_snapshot=snapshots[0] if snapshots else None,
    )
