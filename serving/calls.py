"""One CALL, and the shape of what answers it.

A service that answers calls has ``verbs``: functions by the name that clients give. ``CallService``
puts those of all services into one table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ledgermq.serving.state_log import Caller

Result = Mapping[str, object]
Arguments = Mapping[str, object]


class Call(NamedTuple):
    """Who asks, with which arguments, and when (monotonic ms)."""

    caller: Caller
    arguments: Arguments
    now_ms: int


Verb = Callable[[Call], Result | None]
"""The result of a call, ``None`` when it is given later, through the log. Raises ``LedgerError``:
why there is none."""

Verbs = Mapping[str, Verb]

Members = Callable[[str], Collection[str]]
"""The clients that consume for a group now."""


def nobody(_group: str) -> Collection[str]:
    """Where nobody keeps track of who consumes."""
    return ()
