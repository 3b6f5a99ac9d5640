"""``ledgermq topic create --over``, ``topic spread`` and ``topic release``: topics over groups."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ledgermq.cli.admin.strict_spread import add_strict, reopen, spread_strictly
from ledgermq.cli.node_options import NAME
from ledgermq.cli.node_verbs import ON_OFF, asks
from ledgermq.cli.output import print_table, tell
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError
from ledgermq.verbs.clusters import TopicOverGroups
from ledgermq.verbs.verb import as_json

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
            " key, what was sent before is in order, and what is sent after; with --strict all of"
            " it is. Without --over and promises the groups are shown.",
        ),
        connect_broker,
        _spread,
    )
    spread.add_argument("topic", metavar="TOPIC")
    spread.add_argument("--over", metavar="GROUPS", help="groups by commas, or all")
    spread.add_argument(
        "--queues",
        type=int,
        metavar="N",
        help="at least so many in each of these groups (default: as many as the one that has most,"
        " where a group has none yet)",
    )
    add_strict(spread)
    add_fails_over(spread)
    spread.add_argument(
        "--order", choices=tuple(ON_OFF), help="an order topic in its groups: nothing fails over"
    )
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


def add_fails_over(parser: argparse.ArgumentParser) -> None:
    """Add ``--fails-over``."""
    parser.add_argument(
        "--fails-over",
        choices=tuple(ON_OFF),
        help="a message that one group has not stored in time is sent to another one, and may be in"
        " both then",
    )


def create_over(arguments: argparse.Namespace, others: Sequence[str]) -> int:
    """``topic create --over``; ``others`` are options beside the number of queues.

    Raises:
        ConfigError: there are some, or no groups.
    """
    if arguments.over is None:
        raise ConfigError(
            "--adopt and --fails-over are for topics over groups: name them with --over"
        )
    if others:
        raise ConfigError(
            "a topic over groups is made with a number of queues and promises alone: alter the rest"
            " in each group",
            given=" ".join(others),
        )
    groups = _groups(arguments.over)
    with connect_broker(arguments.address, name=NAME, timeout_s=arguments.timeout) as broker:
        found = ClusterAdmin(broker).set_topic(
            arguments.topic,
            groups,
            queues=arguments.queues,
            adopt=arguments.adopt,
            **_promises(arguments),
        )
    return _tell(arguments, found)


def _spread(broker: Broker, arguments: argparse.Namespace) -> int:
    cluster, topic, promises = ClusterAdmin(broker), arguments.topic, _promises(arguments)
    found = None
    if arguments.reopen and (arguments.over is not None or arguments.strict):
        raise ConfigError("--reopen opens a topic as it is, without --over and --strict")
    if arguments.strict and arguments.over is None:
        raise ConfigError("--strict needs the groups that the topic is to be over: --over")
    if arguments.reopen:
        found = reopen(cluster, topic)
    elif arguments.over is not None:
        groups = _groups(arguments.over)
        if arguments.strict:
            found = spread_strictly(broker, arguments, groups)
        else:
            found = cluster.set_topic(topic, groups, queues=arguments.queues, spread=True)
    if any(value is not None for value in promises.values()):
        found = cluster.promise(topic, **promises)
    return _tell(arguments, found or cluster.topic_groups(topic))


def _release(broker: Broker, arguments: argparse.Namespace) -> int:
    ClusterAdmin(broker).release_topic(arguments.topic)
    released = {"topic": arguments.topic}
    return tell(arguments, released, lambda: print(f"topic {arguments.topic} is over no groups"))


def _promises(arguments: argparse.Namespace) -> dict[str, bool | None]:
    return {name: ON_OFF.get(getattr(arguments, name)) for name in ("fails_over", "order")}


def _groups(given: str) -> list[str]:
    if given == ALL:
        return []
    found = [one.strip() for one in given.split(",")]
    if not all(found):
        raise ConfigError("--over names groups by commas, or all", given=given)
    return found


def _tell(arguments: argparse.Namespace, found: TopicOverGroups) -> int:
    def show() -> None:
        print_table(
            ("group", "queues", "phase"),
            [(one.group, f"{one.queues}", one.phase) for one in found.groups],
        )
        if found.order:
            print("order is promised: nothing fails over")
        elif found.fails_over:
            print("messages fail over to other groups, and may be in two then")
        if found.refused:
            print(f"{found.group} does not follow: {found.refused}")

    return tell(arguments, as_json(found), show)
