"""RocketMQ's consumers as members of groups, for the tools of ours."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.broker.consumers.other_members import OTHER_OWNER_PREFIX
from ledgermq.gateway.clients.client_table import ClientTable, ConnectedConsumer
from ledgermq.model.message_filter import ALL_TAGS, SQL_MARK
from ledgermq.remoting.heartbeat import MessageModel, Subscription
from ledgermq.remoting.pull_request import SQL92
from ledgermq.rules.consumers.enrolment import BROADCASTING, CLUSTERING, Member

TOLD_MAX = 5
"""Pairs of a group that are told of."""

STRATEGY = "rocketmq"
"""They share queues as their own settings say, which they do not tell."""


class RemotingMembers:
    """A ``MemberSource``; keeps nothing itself but how many there were, until that changes."""

    def __init__(self, clients: ClientTable) -> None:
        self._clients = clients
        self._counts: dict[str, int] = {}
        self._counted_at = -1

    def counts(self) -> Mapping[str, int]:
        clients = self._clients
        if clients.consumer_changes != self._counted_at:
            self._counted_at = clients.consumer_changes
            self._counts = {
                group: len(clients.consumer_ids(group)) for group in clients.consumer_groups
            }
        return self._counts

    def members(self, group: str) -> list[Member]:
        """Members of a group, in the order in which they came; one with two connections is one."""
        latest = {one.client_id: one for one in self._clients.consumers(group)}
        return [_member(one) for one in latest.values()]

    def warnings(self) -> Mapping[str, list[str]]:
        table = self._clients
        return {
            group: [str(one) for one in table.twins(group)[:TOLD_MAX]]
            for group in table.groups_with_twins
        }


def _member(consumer: ConnectedConsumer) -> Member:
    group = consumer.group
    is_shared = group.model is MessageModel.CLUSTERING
    return Member(
        client=OTHER_OWNER_PREFIX + consumer.client_id,
        instance=str(consumer.connection.number),
        host=consumer.connection.peer[0],
        model=CLUSTERING if is_shared else BROADCASTING,
        start=group.begin.name.removeprefix("CONSUME_FROM_").removesuffix("_OFFSET").lower(),
        ordered=False,
        strategy=STRATEGY,
        subscription={one.topic: _text_of(one) for one in group.subscriptions},
    )


def _text_of(one: Subscription) -> str:
    """The subscription's expression as our own members tell it."""
    if one.expression_type == SQL92:
        return f"{SQL_MARK}{one.expression}"
    return one.expression or ALL_TAGS
