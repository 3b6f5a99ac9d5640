"""Administration of a cluster of groups: begun, joined, left; which groups there are.

Keys and certificates are base64, as the broker tells of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict, Unpack

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.asked import asked
from ledgermq.client.core.questions import ask
from ledgermq.client.core.requests import Result, Steps
from ledgermq.model.errors import ProtocolError
from ledgermq.verbs.answers import Fields, integer, rows, text, texts


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


class PromisedFields(TypedDict, total=False):
    """What a topic over groups promises; see ``TopicOverGroups``."""

    fails_over: bool | None
    order: bool | None


class OwnGroup(NamedTuple):
    """A group's name, and the public key by which it would be certified as a home."""

    group: str
    key: str


class ClusterVerbs:
    """What an admin asks for, and orders. Changes are those of all members on return."""

    @asked
    def cluster(self) -> Steps[ClusterView | None]:
        """What the node knows; None where its group belongs to no cluster.

        Raises:
            ProtocolError: its version is from before there were clusters.
        """
        return _view((yield from ask("cluster_show")))

    @asked
    def own_name(self) -> Steps[str]:
        """Name of the node's group, in whatever cluster it is.

        Raises:
            ProtocolError: its version is from before there were clusters.
        """
        return text((yield from ask("cluster_show")), "group")

    @asked
    def own_key(self) -> Steps[OwnGroup]:
        """The group's name, and the public key by which it would be certified as a home.

        Raises:
            ConfigError: its members have no key in common.
            NoPermissionError: this client is no admin there.
        """
        answer = yield from ask("cluster_key")
        return OwnGroup(text(answer, "group"), text(answer, "key"))

    @asked
    def begin(
        self, cluster: str, *, root: str, chain: Sequence[str], nodes: Sequence[str]
    ) -> Steps[ClusterView]:
        """Begin a cluster whose home is the node's group.

        Raises:
            ConfigError: the group belongs to another one, or its feature level is too low.
            NoPermissionError: this client is no admin there.
        """
        return (yield from _belong("cluster_begin", cluster, root, chain, nodes))

    @asked
    def join(
        self, cluster: str, *, root: str, chain: Sequence[str], nodes: Sequence[str]
    ) -> Steps[ClusterView]:
        """Have the node's group belong to a cluster whose home has these nodes.

        Raises:
            ConfigError: the group belongs to another one, or its feature level is too low.
            NoPermissionError: this client is no admin there.
        """
        return (yield from _belong("cluster_join", cluster, root, chain, nodes))

    @asked
    def leave(self) -> Steps[None]:
        """Have the node's group belong to no cluster.

        Raises:
            ConfigError: it belongs to none, or is the home of others.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("cluster_leave")

    @asked
    def hand_over(self, group: str) -> Steps[ClusterView]:
        """Have another group be the home, in the place of the node's group.

        On return the node's group changes and signs nothing any more. The other one is the home
        as soon as it knows, and ``rows_rank`` of the node's then becomes ``rank``. It is waited for
        until that group has all rows.

        Raises:
            ConfigError: the node's group is not the home, or that one is not in the cluster, or its
                members have no key in common.
            NoPermissionError: this client is no admin there.
        """
        return _known((yield from ask("cluster_hand_over", group=group)))

    @asked
    def take_over(self, chain: Sequence[str]) -> Steps[ClusterView]:
        """Have the node's group be the home, by a certificate of the root key.

        Raises:
            ConfigError: the certificate is another's, or a later one is known.
            NoPermissionError: this client is no admin there.
        """
        return _known((yield from ask("cluster_take_over", chain=[*chain])))

    @asked
    def set_group(self, group: str, nodes: Sequence[str], *, user: str = "") -> Steps[ClusterView]:
        """Have a group in the cluster, whose home the node's group is.

        Args:
            user: who asks for the group; empty: an admin does.

        Raises:
            ConfigError: the node's group is not the home, another group has the name, or there is
                no such user.
            NoPermissionError: this client is no admin there.
        """
        named = {"user": user} if user else {}
        return _known((yield from ask("cluster_group_set", group=group, nodes=[*nodes], **named)))

    @asked
    def remove_group(self, group: str) -> Steps[ClusterView]:
        """Have no such group in the cluster, whose home the node's group is.

        Raises:
            ConfigError: the node's group is not the home, or there is no such group.
            NoPermissionError: this client is no admin there.
        """
        return _known((yield from ask("cluster_group_remove", group=group)))

    @asked
    def topic_over(
        self,
        topic: str,
        groups: Sequence[str],
        *,
        queues: int | None = None,
        adopt: bool = False,
        **promises: Unpack[PromisedFields],
    ) -> Steps[TopicOverGroups]:
        """Have a topic over groups of the cluster, whose home the node's group is.

        It is in the home's log on return; each group follows it once it has heard of it.

        Args:
            groups: by name; none: all that there are.
            queues: in each of them, 1 to 65,535; 8 by default.
            adopt: take up topics of that name that groups have of their own.
            promises: see ``TopicOverGroups``; what is left out is not so, or stays as it is.

        Raises:
            ConfigError: the node's group is not the home, there is no such group, the home has the
                topic of its own, or it is over other groups.
            NoPermissionError: this client is no admin there.
        """
        return topic_over_groups(
            (yield from _set_topic(topic, groups, queues, adopt=adopt, **promises))
        )

    @asked
    def promise(self, topic: str, **promises: Unpack[PromisedFields]) -> Steps[TopicOverGroups]:
        """Have a topic over groups promise something else; what is left out stays as it is.

        Raises:
            ConfigError: the node's group is not the home.
            TopicUnknownError: the topic is over no groups.
            NoPermissionError: this client is no admin there.
        """
        return topic_over_groups((yield from ask("cluster_topic_alter", topic=topic, **promises)))

    @asked
    def spread_topic(
        self,
        topic: str,
        groups: Sequence[str],
        *,
        queues: int | None = None,
        closed: bool | None = None,
    ) -> Steps[TopicOverGroups]:
        """Have a topic over more groups; what the others have of it stays as it is.

        Args:
            groups: by name; none: all that there are.
            queues: each of them has at least so many from now on; by default as many as the one
                that has most, where it has none yet.
            closed: new ones take nothing until the topic is opened.

        Raises:
            ConfigError: the node's group is not the home, or there is no such group or topic.
            NoPermissionError: this client is no admin there.
        """
        flags = {"spread": True, "closed": closed}
        return topic_over_groups((yield from _set_topic(topic, groups, queues, **flags)))

    @asked
    def set_topic_phase(self, topic: str, *, is_open: bool) -> Steps[TopicOverGroups]:
        """Close a topic for producers in all of its groups, or open it, by one change of its row.

        Raises:
            ConfigError: the node's group is not the home.
            TopicUnknownError: the topic is over no groups.
            NoPermissionError: this client is no admin there.
            ProtocolError: the home is of a version from before there was this.
        """
        return topic_over_groups((yield from ask("cluster_topic_phase", topic=topic, open=is_open)))

    @asked
    def release_topic(self, topic: str) -> Steps[None]:
        """Have a topic over no groups any more: each keeps what it has of it as its own.

        Raises:
            ConfigError: the node's group is not the home.
            TopicUnknownError: the topic is over none.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("cluster_topic_release", topic=topic)

    @asked
    def set_phase(self, group: str, *, is_open: bool) -> Steps[int]:
        """Close some of a group's topics for producers, or open them; how many are left to be.

        Those that are over groups; what the group has of its own is its own matter.

        Raises:
            ConfigError: the node's group is not the home, or there is no such group.
            NoPermissionError: this client is no admin there.
        """
        told = yield from ask("cluster_group_phase", group=group, open=is_open)
        return integer(told, "left")

    @asked
    def topic_groups(self, topic: str) -> Steps[TopicOverGroups]:
        """What the node knows of a topic over groups.

        Raises:
            TopicUnknownError: it is over none.
            NoPermissionError: this client has no right to the topic.
        """
        return topic_over_groups((yield from ask("cluster_topic_show", topic=topic)))


class ClusterAdmin(ClusterVerbs):
    """The verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        return self._broker.run(steps)


def _belong(
    verb: str, cluster: str, root: str, chain: Sequence[str], nodes: Sequence[str]
) -> Steps[ClusterView]:
    return _known(
        (yield from ask(verb, cluster=cluster, root=root, chain=[*chain], nodes=[*nodes]))
    )


def _set_topic(
    topic: str, groups: Sequence[str], queues: int | None, **flags: bool | None
) -> Steps[Fields]:
    number = {} if queues is None else {"queues": queues}
    given = {name: value for name, value in flags.items() if value is not None}
    return (yield from ask("cluster_topic_set", topic=topic, groups=[*groups], **number, **given))


def topic_over_groups(answer: Fields) -> TopicOverGroups:
    """A topic over groups, as ``cluster_topic_show`` answers."""
    return TopicOverGroups(
        text(answer, "topic"),
        rows(answer, "groups", _share),
        answer.get("adopts") is True,
        answer.get("fails_over") is True,
        answer.get("order") is True,
        text(answer, "group"),
        answer.get("follows") is True,
        text(answer, "refused"),
    )


def _share(row: Fields) -> TopicShareView:
    return TopicShareView(text(row, "group"), integer(row, "queues"), text(row, "phase"))


def _known(answer: Fields) -> ClusterView:
    found = _view(answer)
    if found is None:
        raise ProtocolError("node tells of no cluster", node=answer.get("node"))
    return found


def _view(answer: Fields) -> ClusterView | None:
    if not text(answer, "cluster"):
        return None
    return ClusterView(
        node=text(answer, "node"),
        group=text(answer, "group"),
        cluster=text(answer, "cluster"),
        root=text(answer, "root"),
        chain=texts(answer, "chain"),
        home=text(answer, "home"),
        home_nodes=texts(answer, "home_nodes"),
        is_home=answer.get("is_home") is True,
        signs=answer.get("signs") is True,
        epoch=integer(answer, "epoch"),
        by_root=answer.get("by_root") is True,
        rank=integer(answer, "rank"),
        rows_rank=integer(answer, "rows_rank"),
        number=integer(answer, "number"),
        rights_too_old=answer.get("rights_too_old") is True,
        current_ms=None if answer.get("current_ms") is None else integer(answer, "current_ms"),
        is_parted=answer.get("is_parted") is True,
        failure=str(answer.get("failure", "")),
        groups=rows(answer, "groups", _group),
    )


def _group(row: Fields) -> ClusterGroup:
    return ClusterGroup(text(row, "group"), texts(row, "nodes"), text(row, "user"))
