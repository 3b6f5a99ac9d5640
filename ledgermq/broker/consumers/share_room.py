"""Room of share groups: how much waits, and how much is handed out and not settled, by whom.

Of members nothing is promised, and none has to say that it comes or goes: whoever has taken or
settled messages just now is one, until it has gone or has been silent for a while.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple, TypeVar

from ledgermq.broker.call_arguments import optional_text
from ledgermq.broker.callers import Client
from ledgermq.broker.calls import Call
from ledgermq.broker.consumers.share_gather import MESSAGES_PER_COMMAND_MAX, Limits
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import BusyError
from ledgermq.rules.tables.shares import ShareTable
from ledgermq.verbs.shares import MEMBER, RECEIVE_WAIT_MS_MAX, RECEIVED_MAX

SETTLING_MAX = 262_144
SETTLING_PER_CLIENT = 65_536
"""Handles whose settlement waits for the log, of all and of one client."""

RETRY_AFTER_MS = 100
"""Who is refused for want of room had better ask again after this long."""

OWNERS_SHARE = 4
"""One user, or the clients of one host, may have a part of so many of what all have room for."""

TAKEN_MAX = MESSAGES_PER_COMMAND_MAX + RECEIVED_MAX
"""One command hands out no more."""


Waiter = tuple[Client, str]
"""A connection, and the owner for whom it asks."""

Counted = TypeVar("Counted", bound=Client | str | Waiter)


class ShareRoom:
    """Owned by the broker process.

    What a group has not settled counts with the owner who has taken of it last, as the table says,
    which outlives leaders. What it says bounds each group besides.

    Invariant: counts are those of what waits, and of what plans hand out that is not in the table
    yet: those of one command are all made from the same table.
    """

    def __init__(self, shares: ShareTable, settings: Settings) -> None:
        """Nothing waits."""
        self.settings = settings
        self.waiting = 0
        self._shares = shares
        self._waiting_of: Counter[Waiter] = Counter()
        self._settling_of: Counter[Client] = Counter()
        self._planned_of: Counter[str] = Counter()
        self._planned_by: Counter[str] = Counter()

    def plan(self, group: str, taken: Counter[str]) -> None:
        """A plan hands out so many messages, by owners."""
        _count(self._planned_of, group, taken.total())
        for owner, count in taken.items():
            _count(self._planned_by, owner, count)

    def end_plan(self, group: str, taken: Counter[str]) -> None:
        """What the plan says is in the table, or will not be."""
        _count(self._planned_of, group, -taken.total())
        for owner, count in taken.items():
            _count(self._planned_by, owner, -count)
        taken.clear()

    def limits(self, group: str, *, deliveries_max: int, priority_factor: int) -> Limits:
        """How many messages a group may take now.

        None has more than it leaves for all others.
        """
        limits, shares = self.settings.limits, self._shares
        own, all_ = limits.share_unsettled_per_group, limits.share_unsettled_max
        has = shares.unsettled_of(group) + self._planned_of[group]
        left_of_all = all_ - shares.unsettled - self._planned_of.total()
        room = min(own - has, (left_of_all - has) // 2)
        if room == own - has:
            reached = _reached("of a share group", group, has, own, "share_unsettled_per_group")
        else:
            whose = "of a share group, as many as it leaves for all others,"
            reached = _reached(whose, group, has, left_of_all, "share_unsettled_max")
        # What only waits leaves the other half to what is handed out.
        room_to_wait = max(0, min(room, own // 2 - has))
        return Limits(max(0, room), room_to_wait, reached, deliveries_max, priority_factor)

    def left_of(self, owner: str) -> int | None:
        """How many messages more an owner may have, of all groups that it has taken of last; None:
        more than one command hands out.
        """
        share = self.settings.limits.share_unsettled_max // OWNERS_SHARE
        planned = self._planned_of.total()
        if not owner or self._shares.unsettled + planned + TAKEN_MAX <= share:
            return None
        return share - self._shares.unsettled_by(owner) - self._planned_by[owner]

    def reached_by(self, owner: str, group: str) -> BusyError:
        """The refusal of an owner that has too many."""
        share = self.settings.limits.share_unsettled_max // OWNERS_SHARE
        has = self._shares.unsettled_by(owner) + self._planned_by[owner]
        return _reached("of one user or host", group, has, share, "share_unsettled_max")

    def wait(self, waiter: Waiter, more: int) -> None:
        """More receives of a client, for one owner, wait, or fewer."""
        self.waiting += more
        _count(self._waiting_of, waiter, more)

    def settle(self, client: Client, more: int) -> None:
        """More handles of a client wait to be settled, or fewer."""
        _count(self._settling_of, client, more)

    def check_settling(self, client: Client, count: int) -> None:
        """Refuse handles of one client more where those of all, or its own, are too many.

        Raises:
            BusyError: they are.
        """
        for settling, limit in (
            (self._settling_of.total(), SETTLING_MAX),
            (self._settling_of[client], SETTLING_PER_CLIENT),
        ):
            if settling + count > limit:
                raise BusyError(
                    "too many handles wait to be settled",
                    waiting=settling,
                    limit=limit,
                    retry_after_ms=RETRY_AFTER_MS,
                )

    def check_waiting(self, waiter: Waiter) -> None:
        """Refuse one more receive that waits where there are too many, of all or of one client.

        Raises:
            BusyError: there are.
        """
        limits, own = self.settings.limits, self._waiting_of[waiter]
        for waiting, limit, setting in (
            (self.waiting, limits.members_max, "limits.members_max"),
            (own, limits.held_pulls_per_client, "limits.held_pulls_per_client"),
        ):
            if waiting >= limit:
                raise BusyError(
                    "too many receives wait for messages of share groups",
                    waiting=waiting,
                    limit=limit,
                    setting=setting,
                    retry_after_ms=RETRY_AFTER_MS,
                )


def _reached(whose: str, group: str, unsettled: int, limit: int, setting: str) -> BusyError:
    return BusyError(
        f"too many messages {whose} are handed out and not settled",
        group=group,
        unsettled=unsettled,
        limit=limit,
        setting=f"limits.{setting}",
        retry_after_ms=RETRY_AFTER_MS,
    )


def _count(counter: Counter[Counted], of: Counted, more: int) -> None:
    counter[of] += more
    if not counter[of]:
        del counter[of]


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
