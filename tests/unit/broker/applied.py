"""All of a log applied, however slow the machine is: ``StateLog.apply`` does some of it a turn."""

from __future__ import annotations

from ledgermq.broker.state.state_log import StateLog


def apply_all(state: StateLog) -> None:
    """Apply what is new, to its end."""
    state.apply()
    while state.is_behind:
        state.apply()
