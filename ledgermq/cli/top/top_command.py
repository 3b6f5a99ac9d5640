"""``ledgermq top``: a live view of all nodes of a group and of those who consume, in the terminal.

Exit status: 0 done; 1 the command line, no terminal, or no node answered.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from ledgermq.cli.node_options import add_node_options
from ledgermq.cli.seen_text import drawn
from ledgermq.cli.top.top_figures import ClusterFigures, SortOrder, figures
from ledgermq.cli.top.top_look import ClusterLooks, ClusterWatch, Look
from ledgermq.model.errors import ConfigError, NotLeaderError

if TYPE_CHECKING:
    from ledgermq.cli.top.top_screen import Choice
    from ledgermq.cli.top.top_terminal import Terminal

INTERVAL_S_MIN = 0.2
GROUPS = 100
WIDTH = 80


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
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="look so often (default: 2)"
    )
    parser.add_argument(
        "--groups", type=int, default=GROUPS, metavar="N",
        help=f"know the N groups with the most lag (default: {GROUPS})",
    )  # fmt: skip
    parser.add_argument(
        "--sort", choices=[order.value for order in SortOrder], default=SortOrder.LAG.value,
        help="how groups are sorted at first (default: lag)",
    )  # fmt: skip
    parser.add_argument(
        "--once", action="store_true", help="look for one interval, print that, and end"
    )
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
        _live(looks, arguments)
    return 0


def _once(looks: ClusterLooks, arguments: argparse.Namespace) -> int:
    before = looks.look()
    time.sleep(arguments.interval)
    found = figures(before, looks.look())
    if arguments.json:
        print(json.dumps(to_json(found), indent=2))
    else:
        _print(found, _first_choice(arguments))
    if all(node.away for node in found.nodes):
        raise NotLeaderError(
            "no node answers", nodes=[f"{node.address}: {node.away}" for node in found.nodes]
        )
    return 0


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


def _print(found: ClusterFigures, choice: Choice) -> None:
    from rich.console import Console

    from ledgermq.cli.top.top_screen import screen

    console = Console(file=drawn(sys.stdout))
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(screen(found, choice, height=None))


def _first_choice(arguments: argparse.Namespace) -> Choice:
    from ledgermq.cli.top.top_screen import Choice

    return Choice(order=SortOrder(arguments.sort))


def _live(looks: ClusterLooks, arguments: argparse.Namespace) -> None:
    # Only here: drawing needs a library that takes a while to import, and --json does without.
    from ledgermq.cli.top.top_terminal import Terminal

    with Terminal() as terminal:
        watch = ClusterWatch(looks, interval_s=arguments.interval, tell=terminal.ring)
        try:
            _show(terminal, watch, _first_choice(arguments))
        except KeyboardInterrupt:
            # The other way to say that one has seen enough.
            return
        finally:
            watch.close()


def _show(terminal: Terminal, watch: ClusterWatch, choice: Choice) -> None:
    """Draw what there is after each look, key and change of size, until the reader has enough."""
    from ledgermq.cli.top.top_screen import screen
    from ledgermq.cli.top.top_terminal import END

    last: Look | None = None
    found: ClusterFigures | None = None
    while True:
        for key in terminal.typed():
            if key in (END, "q"):
                return
            choice = _chosen(choice, key, found)
        watch.paused = choice.paused
        latest = watch.take()
        if latest is not None and not choice.paused:
            found, last = figures(last, latest), latest
        if found is not None:
            terminal.draw(screen(found, choice, height=terminal.measure()))


def _chosen(choice: Choice, key: str, found: ClusterFigures | None) -> Choice:
    """What is to be shown after a key."""
    from ledgermq.cli.top.top_terminal import ESCAPE

    if key in ("p", " "):
        return choice._replace(paused=not choice.paused)
    if key == "s":
        orders = list(SortOrder)
        return choice._replace(order=orders[(orders.index(choice.order) + 1) % len(orders)])
    if key == ESCAPE:
        return choice._replace(node="", group="")
    if key == "n" and found is not None:
        names = [node.name for node in found.nodes if node.name]
        return choice._replace(node=_next(names, choice.node), group="")
    if key == "g" and found is not None:
        names = [group.group for group in found.groups]
        return choice._replace(group=_next(names, choice.group), node="")
    return choice


def _next(names: list[str], name: str) -> str:
    """The name behind ``name``, in a ring with the empty one between its ends."""
    ring = ["", *names]
    return ring[(ring.index(name) + 1) % len(ring)] if name in ring else ""
