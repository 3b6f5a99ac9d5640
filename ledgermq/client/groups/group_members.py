"""Members of a consumer group, as the leader's broker tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.client.core.questions import ask
from ledgermq.client.core.requests import Steps
from ledgermq.model.errors import ProtocolError
from ledgermq.model.message_filter import ALL_TAGS
from ledgermq.verbs.answers import elements, integer, rows


class MemberRow(NamedTuple):
    """One member; see ``GroupOptions``."""

    client: str
    host: str
    model: str
    start: str
    ordered: bool
    strategy: str
    subscription: Mapping[str, str]

    @property
    def subscription_text(self) -> str:
        """Topics, with what is wanted of them where that is not everything."""
        return ", ".join(
            topic if expression == ALL_TAGS else f"{topic} ({expression})"
            for topic, expression in sorted(self.subscription.items())
        )

    @property
    def mode(self) -> str:
        """How it consumes, in a few words."""
        words = [self.model] if self.model != "clustering" else [self.strategy]
        return ", ".join([*words, *(["ordered"] if self.ordered else [])])


class MemberQueue(NamedTuple):
    """One queue of what the group consumes.

    Attributes:
        client: id of its owner, None when nobody has it.
        committed: next offset to consume, None when nothing is committed.
        lag: messages behind that.
    """

    topic: str
    queue_id: int
    client: str | None
    committed: int | None
    lag: int


class GroupMembers(NamedTuple):
    """The members of a group, and their queues.

    Attributes:
        warnings: in what they do not want the same.
    """

    group: str
    members: tuple[MemberRow, ...]
    queues: tuple[MemberQueue, ...]
    warnings: tuple[str, ...]

    def queues_of(self, client: str) -> list[MemberQueue]:
        """The queues that one member has."""
        return [queue for queue in self.queues if queue.client == client]

    def to_fields(self) -> dict[str, object]:
        """The same as a JSON object."""
        return {
            "group": self.group,
            "members": [member._asdict() for member in self.members],
            "queues": [queue._asdict() for queue in self.queues],
            "warnings": list(self.warnings),
        }


def members_of(group: str) -> Steps[GroupMembers]:
    """Who consumes for a group now, and which queues each member has."""
    result = yield from ask("group_members", group=group)
    return GroupMembers(
        group,
        tuple(rows(result, "members", _member)),
        tuple(rows(result, "queues", _queue)),
        tuple(str(one) for one in elements(result, "warnings")),
    )


def _member(row: Mapping[str, object]) -> MemberRow:
    wanted = row.get("subscription")
    if not isinstance(wanted, dict):
        raise ProtocolError("field missing or not an object", field="subscription")
    return MemberRow(
        client=str(row.get("client")),
        host=str(row.get("host")),
        model=str(row.get("model")),
        start=str(row.get("start")),
        ordered=bool(row.get("ordered")),
        strategy=str(row.get("strategy")),
        subscription={topic: str(wanted[topic]) for topic in wanted},
    )


def _queue(row: Mapping[str, object]) -> MemberQueue:
    client = row.get("client")
    return MemberQueue(
        str(row.get("topic")),
        integer(row, "queue"),
        None if client is None else str(client),
        None if row.get("committed") is None else integer(row, "committed"),
        integer(row, "lag"),
    )
