"""A CALL, and the rows of what answers it: each verb with its function and its right.

A service that answers calls has ``verbs``, one row for each. ``CallService`` puts those of all
services into one table. No row can be made that does not say what its verb needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ledgermq.broker.callers import Caller
from ledgermq.model.errors import NoPermissionError
from ledgermq.model.rights import Right
from ledgermq.verbs.needs import VerbNeeds

Result = Mapping[str, object]
Arguments = Mapping[str, object]

NEWEST: Result = MappingProxyType({})
"""What goes with the result of a node that surely leads."""

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
        as_of: what goes with the result, where this node does not surely lead: what it is.
    """

    caller: Caller
    arguments: Arguments
    now_ms: int
    check_topic: CheckTopic = anybody
    user: str = ""
    is_admin: bool = True
    owner: str = ""
    as_of: Result = NEWEST

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


AnswerCall = Callable[[Call], Result | None]
"""The result of a call, ``None`` when it is given later, through the log. Raises ``LedgerError``:
why there is none."""


class AnsweredVerb(NamedTuple):
    """One verb: who answers it, and what is decided before anybody does.

    Attributes:
        whatever_tables: it is answered also while this node's tables are behind the log.
    """

    name: str
    answer: AnswerCall
    needs: VerbNeeds
    whatever_tables: bool = False


Verbs = Sequence[AnsweredVerb]

Members = Callable[[str], Collection[str]]
"""The clients that consume for a group now."""
