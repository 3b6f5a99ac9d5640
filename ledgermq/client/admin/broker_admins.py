"""Verbs of the table by subject: users and quotas, schemas, archives, feature levels, clusters."""

from __future__ import annotations

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.asked import asked
from ledgermq.client.core.questions import all_pages, ask
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.core.table_verbs import verb
from ledgermq.verbs import access, clusters, schemas, upkeep
from ledgermq.verbs.answers import text


class OverBroker:
    """Verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        """Verbs that ask ``broker``."""
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to, asked one after the other.

        Raises:
            LedgerError: the broker refused one, or did not answer.
        """
        return self._broker.run(steps)


class AccessVerbs:
    """What only admins may ask for, and order."""

    users = verb(access.ListUsers)
    set_user = verb(access.SetUser)
    remove_user = verb(access.RemoveUser)
    quotas = verb(access.ListQuotas)
    set_quota = verb(access.SetQuota)
    remove_quota = verb(access.RemoveQuota)


class SchemaVerbs:
    """What who uses a topic may ask for, and an admin may order."""

    schema = verb(schemas.ShowSchema)
    schema_of_id = verb(schemas.SchemaOfId)
    check_schema = verb(schemas.CheckSchema)
    register = verb(schemas.RegisterSchema)
    set_rule = verb(schemas.SetSchemaRule)
    delete_schema = verb(schemas.DeleteSchema)

    @asked
    def subjects(self) -> Steps[list[schemas.SubjectRow]]:
        """All subjects of topics that this client may use, by name.

        Raises:
            NotLeaderError: no broker answers.
        """
        return (yield from all_pages(schemas.ListSubjects, lambda row: row.subject))


class AccessAdmin(AccessVerbs, OverBroker):
    """Users and quotas, over a broker's connection."""


class SchemaAdmin(SchemaVerbs, OverBroker):
    """Schemas, over a broker's connection."""


class FeatureAdmin(OverBroker):
    """Feature levels, over a broker's connection."""

    features = verb(upkeep.ShowFeatures)
    enable = verb(upkeep.EnableFeatures)


class ArchiveAdmin(OverBroker):
    """Archives that retention waits for, over a broker's connection."""

    archives = verb(upkeep.ListArchives)
    commit = verb(upkeep.CommitArchive)
    remove = verb(upkeep.RemoveArchive)


class ClusterAdmin(OverBroker):
    """A cluster of groups, over a broker's connection. A change is all members' on return."""

    cluster = verb(clusters.ShowCluster)
    own_key = verb(clusters.ShowOwnKey)
    begin = verb(clusters.BeginCluster)
    join = verb(clusters.JoinCluster)
    leave = verb(clusters.LeaveCluster)
    hand_over = verb(clusters.HandHomeOver)
    take_over = verb(clusters.TakeHomeOver)
    set_group = verb(clusters.SetClusterGroup)
    remove_group = verb(clusters.RemoveClusterGroup)
    set_group_phase = verb(clusters.SetGroupPhase)
    set_topic = verb(clusters.SetTopicGroups)
    promise = verb(clusters.AlterTopicGroups)
    set_topic_phase = verb(clusters.SetTopicPhase)
    release_topic = verb(clusters.ReleaseTopic)
    topic_groups = verb(clusters.ShowTopicGroups)

    @asked
    def own_name(self) -> Steps[str]:
        """Name of the node's group, in whatever cluster it is.

        Raises:
            ProtocolError: its version is from before there were clusters.
        """
        return text((yield from ask(clusters.ShowCluster.NAME)), "group")
