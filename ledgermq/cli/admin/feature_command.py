"""``ledgermq cluster features``: the feature levels of a group.

Exit status: 0 done; 1 refused, or the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell
from ledgermq.client.admin.broker_admins import FeatureAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.features import LEVELS, described, holding_back, version_of
from ledgermq.verbs.upkeep import FeatureLevels


def add_features(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``features``."""
    features = commands.add_parser(
        "features",
        help="show the feature level in force, or put the next one in force",
        description="What a version adds to the log, or to what members say, stays off until its "
        "level is in force. A level can be put in force once all members know it, and never goes "
        "down: versions that do not know it are not let in from then on.",
    )
    features.add_argument(
        "--enable",
        nargs="?",
        type=int,
        const=-1,
        metavar="LEVEL",
        help="put this level in force, without a number the highest",
    )
    asks(features, connect_broker, _features)


def _features(broker: Broker, arguments: argparse.Namespace) -> int:
    admin = FeatureAdmin(broker)
    if arguments.enable is not None:
        in_force = admin.enable(None if arguments.enable < 0 else arguments.enable)
        return tell(arguments, {"in_force": in_force}, f"level {in_force} is in force")
    found = admin.features()
    levels = [level._asdict() for level in LEVELS]
    return tell(arguments, {**found._asdict(), "levels": levels}, "\n".join(_lines(found)))


def _lines(found: FeatureLevels) -> Iterator[str]:
    yield f"in force    level {found.in_force}"
    yield f"known       level {found.known} by {found.node}, version {found.version}"
    if found.members:
        yield f"members     {described(found.members)}"
    if found.needed:
        yield f"held up     the log needs level {found.needed}: {version_of(found.needed)}"
    elif found.in_force < min(found.known, found.members_know):
        yield "next        ledgermq cluster features --enable"
    elif found.in_force < found.known:
        for reason in holding_back(found.members, found.known):
            yield f"held back   {reason}"
    for level in LEVELS:
        yield f"level {level.number}     {level.adds} (since {level.version})"
