"""``ledgermq topic create --over``, ``topic spread`` and ``topic release``: topics over groups."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ledgermq.cli.node_options import NAME
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import print_table, tell
from ledgermq.client.admin.cluster_admin import ClusterAdmin, TopicOverGroups
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError

ALL = "all"


def register_spread(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``topic spread``."""
    text = "give a topic queues in more groups of the cluster"
    spread = asks(
        verbs.add_parser(
            "spread",
            help=text,
            description=f"{text[0].upper()}{text[1:]}. Is asked of the cluster's home. What other"
            " groups have of it stays as it is. A key may change its queue at that moment: of each"
            " key, what was sent before is in order, and what is sent after; without --over the"
            " groups are shown.",
        ),
        connect_broker,
        _spread,
    )
    spread.add_argument("topic", metavar="TOPIC")
    spread.add_argument("--over", metavar="GROUPS", help="groups by commas, or all")
    spread.add_argument(
        "--queues", type=int, metavar="N",
        help="at least so many in each of these groups (default: as many as the one that has most,"
        " where a group has none yet)",
    )  # fmt: skip
    text = "have a topic over no groups of the cluster any more"
    release = asks(
        verbs.add_parser(
            "release",
            help=text,
            description=f"{text[0].upper()}{text[1:]}. Is asked of the cluster's home. Each group"
            " keeps what it has of it, with all messages, as a topic of its own, and can delete"
            " it.",
        ),
        connect_broker,
        _release,
    )
    release.add_argument("topic", metavar="TOPIC")


def create_over(arguments: argparse.Namespace, others: Sequence[str]) -> int:
    """``topic create --over``; ``others`` are options beside the number of queues.

    Raises:
        ConfigError: there are some, or no groups.
    """
    if arguments.over is None:
        raise ConfigError("--adopt is for topics over groups: name them with --over")
    if others:
        raise ConfigError(
            "a topic over groups is made with a number of queues alone: alter the rest in each"
            " group",
            given=" ".join(others),
        )
    groups = _groups(arguments.over)
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        found = ClusterAdmin(broker).topic_over(
            arguments.topic, groups, queues=arguments.queues, adopt=arguments.adopt
        )
    return _tell(arguments, found)


def _spread(broker: Broker, arguments: argparse.Namespace) -> int:
    cluster = ClusterAdmin(broker)
    if arguments.over is None:
        return _tell(arguments, cluster.topic_groups(arguments.topic))
    groups = _groups(arguments.over)
    return _tell(arguments, cluster.spread_topic(arguments.topic, groups, queues=arguments.queues))


def _release(broker: Broker, arguments: argparse.Namespace) -> int:
    ClusterAdmin(broker).release_topic(arguments.topic)
    released = {"topic": arguments.topic}
    return tell(arguments, released, lambda: print(f"topic {arguments.topic} is over no groups"))


def _groups(given: str) -> list[str]:
    if given == ALL:
        return []
    found = [one.strip() for one in given.split(",")]
    if not all(found):
        raise ConfigError("--over names groups by commas, or all", given=given)
    return found


def _tell(arguments: argparse.Namespace, found: TopicOverGroups) -> int:
    def show() -> None:
        print_table(("group", "queues", "phase"), [
            (one.group, f"{one.queues}", one.phase) for one in found.groups
        ])  # fmt: skip
        if found.refused:
            print(f"{found.group} does not follow: {found.refused}")

    document = {**found._asdict(), "groups": [one._asdict() for one in found.groups]}
    return tell(arguments, document, show)
