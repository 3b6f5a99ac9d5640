"""``ledgermq top``: a live view of all nodes of a group and of those who consume, in the terminal.

Exit status: 0 done; 1 the command line, no terminal, or no node answered.
"""

from __future__ import annotations

import argparse
import json
import time
from types import ModuleType

from ledgermq.cli.arguments import add_node_options, takes
from ledgermq.cli.top.top_figures import ClusterFigures, SortOrder, figures
from ledgermq.cli.top.top_look import ClusterLooks
from ledgermq.model.errors import ConfigError, NotLeaderError

INTERVAL_S_MIN = 0.2
GROUPS = 100


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``top``."""
    parser = subparsers.add_parser(
        "top",
        help="watch all nodes of a group: roles, rates, lag, disks, memory",
        description="Watch the nodes at the given addresses, and the consumer groups.\n"
        "Keys: q quits, p pauses, s sorts groups otherwise, n shows the next node in full,\n"
        "g the next group, Esc all again.",
        epilog="examples:\n"
        "  ledgermq top\n"
        "  ledgermq top --address tcp://10.0.0.1:9877,tcp://10.0.0.2:9877,tcp://10.0.0.3:9877\n"
        "  ledgermq top --once --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_options(parser)
    parser.set_defaults(timeout=2.0)
    takes(parser, "--interval SECONDS", "look so often (default: 2)", default=2.0)
    takes(
        parser,
        "--groups N",
        f"know the N groups with the most lag (default: {GROUPS})",
        default=GROUPS,
    )
    takes(
        parser,
        "--sort",
        "how groups are sorted at first (default: lag)",
        choices=[order.value for order in SortOrder],
        default=SortOrder.LAG.value,
    )
    takes(parser, "--once", "look for one interval, print that, and end")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.interval < INTERVAL_S_MIN:
        raise ConfigError(
            "--interval is too short", given=arguments.interval, at_least=INTERVAL_S_MIN
        )
    if not 1 <= arguments.groups <= 1_000:
        raise ConfigError("--groups is out of range", given=arguments.groups, allowed="1 to 1000")
    if arguments.json and not arguments.once:
        raise ConfigError("--json belongs to --once")
    with ClusterLooks(
        arguments.address.split(","), timeout_s=arguments.timeout, groups=arguments.groups
    ) as looks:
        if arguments.once:
            return _once(looks, arguments)
        _drawing().show_live(looks, arguments)
    return 0


def _once(looks: ClusterLooks, arguments: argparse.Namespace) -> int:
    before = looks.look()
    time.sleep(arguments.interval)
    found = figures(before, looks.look())
    if arguments.json:
        print(json.dumps(to_json(found), indent=2))
    else:
        _drawing().print_once(found, arguments)
    if all(node.away for node in found.nodes):
        raise NotLeaderError(
            "no node answers", nodes=[f"{node.address}: {node.away}" for node in found.nodes]
        )
    return 0


def _drawing() -> ModuleType:
    # Drawing needs a library that takes a while to import, and --json does without.
    from ledgermq.cli.top import top_live

    return top_live


def to_json(found: ClusterFigures) -> dict[str, object]:
    """The figures for programs."""
    return {
        "at_ms": found.at_ms,
        "cluster": found.cluster,
        "nodes": [
            {
                **node._asdict(),
                "rates": node.rates._asdict(),
                "mirror": None if node.mirror is None else node.mirror._asdict(),
            }
            for node in found.nodes
        ],
        "mirrors": [mirror._asdict() for mirror in found.mirrors],
        "mirrors_why": found.mirrors_why,
        "groups": [group._asdict() for group in found.groups],
        "group_count": found.group_count,
        "group_lag": found.group_lag,
        "groups_complete": found.groups_complete,
        "groups_why": found.groups_why,
    }
