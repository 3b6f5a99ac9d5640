"""Administration of topics, groups and consumed offsets.

``Admin`` waits, ``AsyncAdmin`` is awaited; both have the same verbs. Every call goes to the leader,
and again to the next one when it changes; to ask twice for the same does no harm. When a change
returns, a majority has it in the log, and every later leader knows it.
"""

from __future__ import annotations

from ledgermq.client.admin.admin_of_groups import AdminOfGroups, AsyncAdminOfGroups
from ledgermq.client.core import questions
from ledgermq.client.core.asked import asked, question
from ledgermq.client.core.questions import all_pages, asking
from ledgermq.client.core.requests import Steps
from ledgermq.client.core.table_verbs import verb
from ledgermq.client.groups.group_members import members_of
from ledgermq.verbs import groups as group_verbs
from ledgermq.verbs import offsets as offset_verbs
from ledgermq.verbs import topics as topic_verbs


class AdminVerbs:
    """What an operator may ask for, and order."""

    NAME = "admin"

    topics = question(questions.topics)
    topic = verb(topic_verbs.ShowTopic)
    create_topic = verb(topic_verbs.CreateTopic)
    alter_topic = verb(topic_verbs.AlterTopic)
    delete_topic = verb(topic_verbs.DeleteTopic)
    members = question(members_of)
    group = verb(group_verbs.ShowGroup)
    delete_group = verb(group_verbs.DeleteGroup)
    lag = verb(group_verbs.ShowLag)
    reset_offsets = verb(offset_verbs.ResetOffsets)
    clone_offsets = verb(offset_verbs.CloneOffsets)

    @asked
    def groups(self) -> Steps[list[group_verbs.GroupRow]]:
        """All groups by name, also those of which only offsets are known."""
        return (yield from all_pages(group_verbs.ListGroups, lambda row: row.group))

    @asked
    def create_group(self, /, group: str, **fields: bool | int) -> Steps[group_verbs.GroupRow]:
        """Create a group.

        Args:
            fields: RocketMQ's names: consumeEnable, consumeFromMinEnable, consumeBroadcastEnable,
                notifyConsumerIdsChangedEnable, retryQueueNums, retryMaxTimes, brokerId,
                whichBrokerWhenConsumeSlowly. RocketMQ's defaults for those left out.

        Raises:
            MessageIllegalError: the name or a field breaks a rule, or there is another group.
            NoPermissionError: it is the broker's own.
        """
        return (yield from asking(group_verbs.CreateGroup(group, dict(fields))))

    @asked
    def alter_group(self, /, group: str, **fields: bool | int) -> Steps[group_verbs.GroupRow]:
        """Change the fields given, as ``create_group`` has them. ``consumeEnable=False`` stops its
        pulls.

        Raises:
            GroupUnknownError: there is no such group.
            MessageIllegalError: a field breaks a rule.
            NoPermissionError: it is the broker's own.
        """
        return (yield from asking(group_verbs.AlterGroup(group, dict(fields))))


class Admin(AdminVerbs, AdminOfGroups):
    """Orders that wait until they are carried out; one thread at a time may give them."""


class AsyncAdmin(AdminVerbs, AsyncAdminOfGroups):
    """Orders that are awaited: ``async with AsyncAdmin(…) as admin:``."""
