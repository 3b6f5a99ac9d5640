"""Verbs of the table by subject: users and quotas, schemas, archives, feature levels, clusters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.asked import AskedVerb, P, asked
from ledgermq.client.core.questions import all_pages, ask, asking
from ledgermq.client.core.requests import Request, Result, Steps
from ledgermq.verbs import access, clusters, schemas, upkeep
from ledgermq.verbs.answers import text
from ledgermq.verbs.verb import RowsVerb, Told, Verb


def verb(make: Callable[P, Verb[Told]]) -> AskedVerb[P, Request, Told]:
    """A verb as a method, which takes what the struct of the verb takes."""

    # What a struct has beside its help is none of the method's.
    @wraps(make, assigned=("__doc__",), updated=())
    def of_client(client: object, /, *args: P.args, **kwargs: P.kwargs) -> Steps[Told]:
        return asking(make(*args, **kwargs))

    # What it wraps is a struct, and no function with these steps.
    del of_client.__wrapped__
    declared = signature(make)
    client = Parameter("self", Parameter.POSITIONAL_ONLY)
    of_client.__signature__ = declared.replace(  # type: ignore[attr-defined]
        parameters=[client, *declared.parameters.values()],
        return_annotation=f"Steps[{_told(make)}]",
    )
    return AskedVerb(of_client)


def _told(made: Any) -> str:
    """What is told, as help says it: the base of a verb with rows knows not which they are."""
    if made.ROW is not None:
        return str(made.ROW.__name__)
    if issubclass(made, RowsVerb):
        return f"list[{made.ROWS[1].__name__}]"
    return str(signature(made.told).return_annotation)


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
