"""``ledgermq cluster move-home``: another group is made the home of a cluster.

Exit status: 0 done; 1 refused, the command line, or not in time; 2 the file of the root key.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ledgermq.cli.node_verbs import asks, confirm
from ledgermq.cli.output import tell
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError, TimedOutError
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.json_objects import decoded, encoded
from ledgermq.rules.cluster.signatures import PUBLIC_SIZE, SigningKey
from ledgermq.sessions.keys.root_key import RootKey, read_root_key, write_root_key
from ledgermq.verbs.clusters import ClusterView

LOOK_AGAIN_S = 0.1


def add_move_home(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``move-home``."""
    move = commands.add_parser(
        "move-home",
        help="make another group of the cluster its home",
        description="Is asked of the home, which hands its place over to a group that has all of"
        " its rows. With --force it is asked of the group that is to be the home, when the one"
        " before it is lost: what only that one had is lost with it.",
    )
    move.add_argument("group", metavar="GROUP", help="the group that is to be the home")
    move.add_argument("--force", action="store_true", help="the home is lost: needs --root-key")
    move.add_argument(
        "--root-key", type=Path, metavar="FILE", help="what `cluster init` wrote, for --force"
    )
    move.add_argument("--yes", action="store_true", help="do not ask")
    asks(move, connect_broker, _move)


def _move(broker: Broker, arguments: argparse.Namespace) -> int:
    if arguments.force != (arguments.root_key is not None):
        raise ConfigError("--force and --root-key FILE belong together: the root key certifies")
    admin = ClusterAdmin(broker)
    found = admin.cluster()
    if found is None:
        raise ConfigError("group belongs to no cluster")
    moved = _force(admin, found, arguments) if arguments.force else _hand_over(admin, arguments)
    document = {"cluster": moved.cluster, "home": moved.home, "epoch": moved.epoch}
    return tell(arguments, document, f"{moved.home} is the home of cluster {moved.cluster}")


def _hand_over(admin: ClusterAdmin, arguments: argparse.Namespace) -> ClusterView:
    """What the home says once the next one has told it that it goes on."""
    group = arguments.group
    confirm(arguments, f"make {group} the home of the cluster")
    deadline = time.monotonic() + arguments.timeout
    found = admin.hand_over(group)
    while found.rows_rank != found.rank:
        if time.monotonic() >= deadline:
            raise TimedOutError(
                "the home has handed its place over, and the next one has not told yet that it goes"
                " on: see `ledgermq cluster status` there",
                home=found.home,
                failure=found.failure,
                waited_s=arguments.timeout,
            )
        time.sleep(LOOK_AGAIN_S)
        found = admin.cluster() or found
    return found


def _force(admin: ClusterAdmin, found: ClusterView, arguments: argparse.Namespace) -> ClusterView:
    path: Path = arguments.root_key
    root, own = read_root_key(path), admin.own_key()
    if root is None:
        raise ConfigError("root key does not exist", file=str(path))
    if root.cluster != found.cluster or encoded(SigningKey(root.secret).public) != found.root:
        raise ConfigError(
            "root key is another cluster's",
            file=str(path),
            cluster=root.cluster,
            this_cluster=found.cluster,
        )
    if own.group != arguments.group:
        raise ConfigError(
            "ask the group that is to be the home: --address",
            group=arguments.group,
            asked=own.group,
        )
    if found.is_home and found.by_root and (root.epoch, root.home) == (found.epoch, own.group):
        return found
    confirm(arguments, f"make {own.group} the home, and lose what the one before it had alone")
    signed = RootKey(root.cluster, root.secret, max(root.epoch, found.epoch) + 1, own.group)
    key = decoded(own.key, size_max=PUBLIC_SIZE)
    wanted = Certificate(root.cluster, signed.epoch, True, own.group, key, found.number, b"")
    # Before anybody has the certificate: no other home is ever certified with this epoch.
    write_root_key(path, signed)
    return admin.take_over([encoded(certify(SigningKey(root.secret), wanted).signed)])
