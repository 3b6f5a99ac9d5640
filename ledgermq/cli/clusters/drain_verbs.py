"""``ledgermq cluster drain``: a group takes nothing any more, and leaves when nothing is left.

Exit status: 0 done; 1 refused, the command line, or something was left when the time was over.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from ledgermq.cli.node_options import NAME
from ledgermq.cli.node_verbs import asks, confirm
from ledgermq.cli.output import tell
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.admin.group_drain import Remains, close_topic, remains
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    NotLeaderError,
    TimedOutError,
    TopicUnknownError,
)

LOOK_AGAIN_S = 1.0

LOOKS = 2
"""Looks in a row at which nothing is left: what was taken in the moment in which the topics were
closed may come behind the first look."""

WAIT_S = 3_600


def add_drain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``drain``."""
    drain = commands.add_parser(
        "drain",
        help="close this group for producers, and have it leave once all is consumed",
        description="Is asked of the group, which is not the home. It leaves the cluster when no"
        " consumer group lags, and no timer, delayed message, open transaction, batch of a sink or"
        " dead letter is left in it. What was broken off may be asked again.",
    )
    drain.add_argument("group", metavar="GROUP", help="the group, so that it is no other one")
    drain.add_argument("--home", metavar="ADDRESS", required=True, help="nodes of the home")
    drain.add_argument(
        "--wait",
        type=float,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"then say what is left, and leave it closed (default: {WAIT_S:,})",
    )
    drain.add_argument(
        "--undo",
        action="store_true",
        help="open its share of topics over groups; its own topics are opened by `topic alter`",
    )
    drain.add_argument(
        "--leave-dead-letters", action="store_true", help="they are no reason to wait"
    )
    drain.add_argument("--yes", action="store_true", help="do not ask")
    asks(drain, connect_broker, _drain)


def _drain(broker: Broker, arguments: argparse.Namespace) -> int:
    admin, group = ClusterAdmin(broker), arguments.group
    found = admin.cluster()
    own = admin.own_name() if found is None else found.group
    if own != group:
        raise ConfigError("ask the group that is to be drained: --address", group=group, asked=own)
    if found is None:
        return _is_gone(arguments)
    if found.home == group and not arguments.undo:
        raise ConfigError("the home itself is not drained: `ledgermq cluster move-home` first")
    confirm(arguments, f"{'open' if arguments.undo else 'drain'} the group {group}")
    with connect_broker(arguments.home, name=NAME, timeout_s=arguments.timeout) as link:
        home = ClusterAdmin(link)
        if arguments.undo:
            _set_phase(home, group, is_open=True)
            return tell(arguments, {"opened": group}, f"{group}: open")
        _empty(broker, home, arguments)
        remove_group(home, group)
    leave_cluster(admin)
    text = f"{group} is drained, and belongs to no cluster any more"
    return tell(arguments, {"drained": group, "before": False}, text)


def _is_gone(arguments: argparse.Namespace) -> int:
    """The group belongs to no cluster: as it does when a drain is asked for again that was done."""
    group = arguments.group
    if arguments.undo:
        raise ConfigError("group belongs to no cluster: it has no share to open", group=group)
    with connect_broker(arguments.home, name=NAME, timeout_s=arguments.timeout) as link:
        if _is_in(ClusterAdmin(link), group):
            raise ConfigError(
                "group belongs to no cluster, but the home has it in its list: `ledgermq cluster"
                " remove`, or `ledgermq cluster join` first",
                group=group,
            )
    text = f"{group} belongs to no cluster: nothing is left to do"
    return tell(arguments, {"drained": group, "before": True}, text)


def remove_group(home: ClusterAdmin, group: str) -> None:
    """Have no such group in the cluster of ``home``, which may have none already.

    Raises:
        LedgerError: as from ``ClusterAdmin.remove_group``.
    """
    if not _is_in(home, group):
        # This was broken off just before the group left.
        return
    try:
        home.remove_group(group)
    except ConfigError:
        # It is asked again when an answer is lost, and then of a home that has done it.
        if _is_in(home, group):
            raise


def leave_cluster(admin: ClusterAdmin) -> None:
    """Have the group belong to no cluster, also where the answer to that is lost.

    Raises:
        LedgerError: as from ``ClusterAdmin.leave``.
    """
    try:
        admin.leave()
    except ConfigError:
        if admin.cluster() is not None:
            raise


def _set_phase(home: ClusterAdmin, group: str, *, is_open: bool) -> None:
    while home.set_group_phase(group, is_open=is_open).left:
        pass


def _is_in(home: ClusterAdmin, group: str) -> bool:
    found = home.cluster()
    return found is not None and any(one.group == group for one in found.groups)


def _empty(broker: Broker, home: ClusterAdmin, arguments: argparse.Namespace) -> None:
    """Close what takes messages, and wait until nothing is left."""
    deadline = time.monotonic() + arguments.wait
    looks, told = 0, ""
    while True:
        if _is_in(home, arguments.group):
            _set_phase(home, arguments.group, is_open=False)
        reasons = _reasons(broker, arguments)
        looks = 0 if reasons else looks + 1
        if looks == LOOKS:
            return
        text = ", ".join(reasons)
        if time.monotonic() >= deadline:
            raise TimedOutError(
                "group takes nothing any more, and is not drained yet: ask again, or --undo",
                left=text[:1_000],
                waited_s=arguments.wait,
            )
        if text and text != told:
            told = text
            print(f"left: {text}", file=sys.stderr)
        time.sleep(LOOK_AGAIN_S)


def _reasons(broker: Broker, arguments: argparse.Namespace) -> list[str]:
    try:
        left: Remains = broker.run(remains())
    except (BusyError, NotLeaderError) as error:
        return [str(error)]
    for topic in left.own:
        # One may be gone by now, or be the cluster's: the next look says so.
        with suppress(TopicUnknownError, ConfigError, BusyError, NotLeaderError):
            broker.run(close_topic(topic))
    if arguments.leave_dead_letters:
        left = left._replace(dead_letters={})
    return left.reasons
