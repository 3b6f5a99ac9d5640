"""Verbs about a cluster of groups: begun, joined, left and drained, and topics over its groups.

Those about groups and topics are asked of the home. Keys and certificates are base64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.names.clusters import (
    CERTIFICATE_SIZE_MAX,
    CHAIN_LENGTH_MAX,
    CLUSTER_GROUPS_MAX,
    NAME_LENGTH_MAX,
    NODE_ADDRESS_SIZE_MAX,
    NODES_MAX,
)
from ledgermq.verbs.answers import Fields, text
from ledgermq.verbs.needs import ADMIN, ANY, CHANGE, USER, read, shown, topic_right
from ledgermq.verbs.told_rows import read_row
from ledgermq.verbs.verb import Bounds, DoneVerb, Length, Texts, TopicName, Verb

_OPEN = MappingProxyType({"is_open": "open"})
ClusterName = Annotated[str, "Name of a cluster"]
ClusterGroupName = Annotated[str, "Name of a group of the cluster"]
Chain = Annotated[
    Sequence[str],
    Texts("certificates", CHAIN_LENGTH_MAX, 2 * CERTIFICATE_SIZE_MAX),
    "Certificates of the homes",
]
Nodes = Annotated[
    Sequence[str],
    Texts("addresses", NODES_MAX, NODE_ADDRESS_SIZE_MAX),
    "Addresses of members of the group",
]


class ClusterGroup(NamedTuple):
    """A group of a cluster: addresses of its members, and the user that asks its home for them."""

    group: str
    nodes: tuple[str, ...]
    user: str


class ClusterView(NamedTuple):
    """A cluster, as one node knows it.

    Attributes:
        node: who tells.
        group: its group.
        root, chain: the cluster's public key, and the certificates of its homes.
        home: name of the group that is the home; empty before one is known.
        is_home: the node's group is, and has all rows that it should begin with.
        signs: the node has the key of the home.
        epoch: of the home's certificate; 0 before there is one.
        by_root: the root key has signed it.
        rows_rank: of the home that has confirmed the rows that are here; 0: none has.
        number: of the last change of the rows that are here.
        rights_too_old: nobody has heard the home for too long, and the cluster's users are refused.
        current_ms: how long ago they were all that the home had; None: the node does not lead, or
            no member of the home has said so yet.
        is_parted: the group has rows that the home has lost.
        failure: why the last member of the home that was asked gave nothing.
    """

    node: str
    group: str
    cluster: str
    root: str
    chain: tuple[str, ...]
    home: str
    home_nodes: tuple[str, ...]
    is_home: bool
    signs: bool
    epoch: int
    by_root: bool
    rank: int
    rows_rank: int
    number: int
    rights_too_old: bool
    current_ms: int | None
    is_parted: bool
    failure: str
    groups: list[ClusterGroup]


class OwnGroup(NamedTuple):
    """A group's name, and the public key by which it would be certified as a home."""

    group: str
    key: str


class OwnTopic(NamedTuple):
    """A topic that no row of the cluster is about; ``perm`` as in ``TopicSettings``."""

    topic: str
    perm: int


class GroupRemains(NamedTuple):
    """What a group takes yet, and what waits in it, the lag of consumers aside.

    Attributes:
        topic_count: topics that take messages.
        own: some of them that are the group's own.
        is_known: what takes messages knows the topics as they are.
        timers, delayed, half_messages: messages that wait for a time, and for their transaction.
    """

    group: str
    topic_count: int
    own: list[OwnTopic]
    is_known: bool
    timers: int
    delayed: int
    half_messages: int


class SharesLeft(NamedTuple):
    """How many shares of a group are in the other phase yet."""

    group: str
    left: int


class TopicShareView(NamedTuple):
    """What a group has of a topic: ``phase`` is ``open``, or ``closed`` where it takes nothing."""

    group: str
    queues: int
    phase: str


class TopicOverGroups(NamedTuple):
    """A topic over groups, as one node knows it.

    Attributes:
        groups: what each has of it.
        adopts: groups that have a topic of that name of their own take it up.
        fails_over: a ``Producer`` sends a message to another group when one has not stored
            it in time; it may be in both then.
        order: it is an order topic in its groups, and nothing of it fails over.
        group: the node's.
        follows: the topic of the node's group is as the cluster's row says, or about to be.
        refused: why it is not; empty: it is, or the node does not lead.
    """

    topic: str
    groups: list[TopicShareView]
    adopts: bool
    fails_over: bool
    order: bool
    group: str
    follows: bool
    refused: str


class _ShownCluster(Verb[ClusterView | None]):
    def told(self, answer: Fields) -> ClusterView | None:
        """What the node knows; None where its group belongs to no cluster."""
        # Of its age it tells to who asks for nothing else.
        told = {"failure": "", **answer}
        return read_row(ClusterView, told) if text(answer, "cluster") else None


class _KnownCluster(Verb[ClusterView]):
    NEEDS: ClassVar = CHANGE

    def told(self, answer: Fields) -> ClusterView:
        """What the node knows."""
        found = _ShownCluster().told(answer)
        if found is None:
            raise ProtocolError("node tells of no cluster", node=answer.get("node"))
        return found


class ShowCluster(_ShownCluster):
    """What the node knows; None where its group belongs to no cluster.

    Raises:
        ProtocolError: its version is from before there were clusters.
    """

    NAME: ClassVar = "cluster_show"
    NEEDS: ClassVar = shown(USER)


class ShowOwnKey(Verb[OwnGroup]):
    """The group's name, and the public key by which it would be certified as a home.

    Raises:
        ConfigError: its members have no key in common.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_key"
    NEEDS: ClassVar = read(CHANGE)
    ROW: ClassVar = OwnGroup


class BeginCluster(_KnownCluster):
    """Begin a cluster whose home is the node's group.

    Raises:
        ConfigError: the group belongs to another one, or its feature level is too low.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_begin"

    cluster: ClusterName
    _: KW_ONLY
    root: Annotated[str, Length(0, 255), "The cluster's public key"]
    chain: Chain
    nodes: Nodes


class JoinCluster(BeginCluster):
    """Have the node's group belong to a cluster whose home has these nodes.

    Raises:
        ConfigError: the group belongs to another one, or its feature level is too low.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_join"


class LeaveCluster(_ShownCluster):
    """Have the node's group belong to no cluster.

    Raises:
        ConfigError: it belongs to none, or is the home of others.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_leave"
    NEEDS: ClassVar = CHANGE


class HandHomeOver(_KnownCluster):
    """Have another group be the home, in the place of the node's group.

    On return the node's group changes and signs nothing any more. The other one is the home
    as soon as it knows, and ``rows_rank`` of the node's then becomes ``rank``. It is waited for
    until that group has all rows.

    Raises:
        ConfigError: the node's group is not the home, or that one is not in the cluster, or its
            members have no key in common.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_hand_over"

    group: ClusterGroupName


class TakeHomeOver(_KnownCluster):
    """Have the node's group be the home, by a certificate of the root key.

    Raises:
        ConfigError: the certificate is another's, or a later one is known.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_take_over"

    chain: Chain


class SetClusterGroup(_KnownCluster):
    """Have a group in the cluster, whose home the node's group is.

    Args:
        user: who asks for the group; None: an admin does.

    Raises:
        ConfigError: the node's group is not the home, another group has the name, or there is
            no such user.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_group_set"

    group: ClusterGroupName
    nodes: Nodes
    _: KW_ONLY
    user: Annotated[str | None, "Who asks for the group"] = None


class RemoveClusterGroup(_KnownCluster):
    """Have no such group in the cluster, whose home the node's group is.

    Raises:
        ConfigError: the node's group is not the home, or there is no such group.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_group_remove"

    group: ClusterGroupName


class SetGroupPhase(Verb[SharesLeft]):
    """Close some of a group's topics for producers, or open them; how many are left to be.

    Those that are over groups; what the group has of its own is its own matter.

    Raises:
        ConfigError: the node's group is not the home, or there is no such group.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_group_phase"
    NEEDS: ClassVar = CHANGE
    WIRE_NAMES: ClassVar = _OPEN
    ROW: ClassVar = SharesLeft

    group: ClusterGroupName
    _: KW_ONLY
    is_open: Annotated[bool, "Open them"] = False


class ShowRemains(Verb[GroupRemains]):
    """What the node's group takes yet, and what waits in it, from behind a command of its log.

    Raises:
        NoPermissionError: this client is no admin there.
        BusyError: it cannot be told at this moment.
    """

    NAME: ClassVar = "cluster_remains"
    NEEDS: ClassVar = read(ADMIN)
    ROW: ClassVar = GroupRemains


class _TopicOver(Verb[TopicOverGroups]):
    NEEDS: ClassVar = CHANGE
    ROW: ClassVar = TopicOverGroups


class ShowTopicGroups(_TopicOver):
    """What the node knows of a topic over groups.

    Raises:
        TopicUnknownError: it is over none.
        NoPermissionError: this client has no right to the topic.
    """

    NAME: ClassVar = "cluster_topic_show"
    NEEDS: ClassVar = shown(topic_right(ANY))

    topic: TopicName


@dataclass(eq=False, repr=False, kw_only=True)
class TopicPromised:
    """What a topic over groups promises; see ``TopicOverGroups``."""

    fails_over: Annotated[bool | None, "Messages may be sent to another group"] = None
    order: Annotated[bool | None, "An order topic in its groups"] = None


class SetTopicGroups(TopicPromised, _TopicOver):
    """Have a topic over groups of the cluster, or with ``spread`` over more of them.

    It is in the home's log on return; each group follows it once it has heard of it. What other
    groups have of a topic that is spread stays as it is.

    Args:
        groups: by name; none: all that there are.
        queues: in each of them, 1 to 65,535; 8 by default. With ``spread`` each has at least so
            many from now on; by default as many as the one that has most, where it has none yet.
        adopt: take up topics of that name that groups have of their own.
        closed: new ones take nothing until the topic is opened; with ``spread``.
        fails_over, order: see ``TopicOverGroups``; what is left out is not so, or stays as it is.

    Raises:
        ConfigError: the node's group is not the home, there is no such group or topic, the home
            has the topic of its own, or it is over other groups.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_topic_set"

    topic: TopicName
    groups: Annotated[
        Sequence[str],
        Texts("names of groups", CLUSTER_GROUPS_MAX, NAME_LENGTH_MAX),
        "Names of groups; none: all",
    ]
    _: KW_ONLY
    queues: Annotated[int | None, Bounds(1, QUEUE_ID_MAX), "In each of them"] = None
    adopt: Annotated[bool | None, "Take up topics of that name"] = None
    spread: Annotated[bool | None, "Over these groups, too"] = None
    closed: Annotated[bool | None, "New ones take nothing"] = None


class AlterTopicGroups(TopicPromised, _TopicOver):
    """Have a topic over groups promise something else; what is left out stays as it is.

    Raises:
        ConfigError: the node's group is not the home.
        TopicUnknownError: the topic is over no groups.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_topic_alter"

    topic: TopicName


class SetTopicPhase(_TopicOver):
    """Close a topic for producers in all of its groups, or open it, by one change of its row.

    Raises:
        ConfigError: the node's group is not the home.
        TopicUnknownError: the topic is over no groups.
        NoPermissionError: this client is no admin there.
        ProtocolError: the home is of a version from before there was this.
    """

    NAME: ClassVar = "cluster_topic_phase"
    WIRE_NAMES: ClassVar = _OPEN

    topic: TopicName
    _: KW_ONLY
    is_open: Annotated[bool, "Open it"] = False


class ReleaseTopic(DoneVerb):
    """Have a topic over no groups any more: each keeps what it has of it as its own.

    Raises:
        ConfigError: the node's group is not the home.
        TopicUnknownError: the topic is over none.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "cluster_topic_release"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "topic", "topic"

    topic: TopicName
