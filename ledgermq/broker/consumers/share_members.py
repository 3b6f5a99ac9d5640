"""Members of share groups: who has taken messages, or settled them, just now.

Nothing is promised to a member, and none has to say that it comes or goes: whoever asks is one,
until it has gone or has been silent for a while.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple

from ledgermq.broker.call_arguments import optional_text
from ledgermq.broker.callers import Client
from ledgermq.broker.calls import Call
from ledgermq.verbs.shares import MEMBER, RECEIVE_WAIT_MS_MAX

SILENT_MS = RECEIVE_WAIT_MS_MAX + 30_000
"""Who waits for messages asks again at the latest when its wait is over."""

MEMBERS_MAX = 20_000
"""Members that are counted; of more, those that were silent for longest are not."""


class _Member(NamedTuple):
    """``name``: which one of those that share a connection."""

    group: str
    client: Client
    name: str


class ShareMembers:
    """Owned by the broker process.

    Invariant: ``_heard`` is in the order in which they were heard last, and ``_counts`` counts
    them by group.
    """

    def __init__(self) -> None:
        self._heard: OrderedDict[_Member, int] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def hear(self, call: Call, group: str) -> None:
        """A client has asked for messages of a group, or settled some."""
        member = _Member(group, call.caller.client, optional_text(call.arguments, MEMBER) or "")
        if self._heard.pop(member, None) is None:
            self._counts[group] += 1
        self._heard[member] = call.now_ms
        while len(self._heard) > MEMBERS_MAX:
            self._drop(next(iter(self._heard)))

    def cancel(self, client: Client) -> None:
        """A connection has ended."""
        for member in [one for one in self._heard if one.client == client]:
            self._drop(member)

    def counts(self, now_ms: int) -> Counter[str]:
        """How many there are of each group; groups without members are left out."""
        while self._heard and next(iter(self._heard.values())) < now_ms - SILENT_MS:
            self._drop(next(iter(self._heard)))
        return self._counts

    def _drop(self, member: _Member) -> None:
        del self._heard[member]
        self._counts[member.group] -= 1
        if not self._counts[member.group]:
            del self._counts[member.group]
