"""A CALL, and the shape of what answers it.

A service that answers calls has ``verbs``: functions by the name that clients give. ``CallService``
puts those of all services into one table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ledgermq.broker.access import Right
from ledgermq.model.errors import NoPermissionError
from ledgermq.serving.state_requests import Caller

Result = Mapping[str, object]
Arguments = Mapping[str, object]


CheckTopic = Callable[[str, Right], None]
"""Raises ``NoPermissionError`` when the client may not use a topic so."""


def anybody(_topic: str, _right: Right) -> None:
    """Where nobody keeps track of rights."""


class Call(NamedTuple):
    """Who asks, with which arguments, and when (monotonic ms).

    Attributes:
        check_topic: for a verb that only finds out by itself what topic it is about.
        user: the user that the client is; empty for an operator, and where users are not checked.
        is_admin: it may act for other users, too.
        owner: whose creations are counted together: a user, a host or an account; empty: nobody's.
    """

    caller: Caller
    arguments: Arguments
    now_ms: int
    check_topic: CheckTopic = anybody
    user: str = ""
    is_admin: bool = True
    owner: str = ""

    def acts_for(self, user: str) -> bool:
        """Whether the client may do with what belongs to ``user`` as that does; empty: nobody's."""
        return self.is_admin or user in ("", self.user)

    def may(self, topic: str, right: Right) -> bool:
        """Whether the client may use ``topic`` so."""
        try:
            self.check_topic(topic, right)
        except NoPermissionError:
            return False
        return True


Verb = Callable[[Call], Result | None]
"""The result of a call, ``None`` when it is given later, through the log. Raises ``LedgerError``:
why there is none."""

Verbs = Mapping[str, Verb]

Members = Callable[[str], Collection[str]]
"""The clients that consume for a group now."""


def nobody(_group: str) -> Collection[str]:
    """Where nobody keeps track of who consumes."""
    return ()
