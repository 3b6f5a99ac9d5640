"""``ledgermq service``: a node as a service of this machine: its unit, its state, its last events.

Exit status: 0 the node runs; 2 it does not; 1 the settings or the command line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ledgermq.cli.arguments import takes
from ledgermq.cli.node.doctor_command import CONFIG_FILE
from ledgermq.cli.node.service_unit import Unit, look_at_unit, unit_name
from ledgermq.cli.node.service_unit import describe as describe_unit
from ledgermq.cli.node.status_command import duration_text, health_lines, size_text
from ledgermq.cli.seen_text import drawn, shown
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.process.systemd.last_events import LastEvents, Told, last_events

if TYPE_CHECKING:
    from ledgermq.daemon.health.status import NodeStatus

EXIT_DOWN = 2
EVENTS = 10
EVENTS_MAX = 1_000
LINE_SIZE = 100
_COLORS = {"CRIT": "31", "ERROR": "31", "WARN": "33", "ready": "32"}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``service`` and its verb."""
    parser = subparsers.add_parser("service", help="look at a node as a service of this machine")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    status = verbs.add_parser(
        "status",
        help="show the unit, the node, and its last events",
        description="The unit as systemd has it, the node as it answers, and the last events of "
        "weight in the journal, which `journalctl --catalog` explains. Exit status 2 when the node "
        "does not run.",
    )
    takes(
        status,
        "--config FILE",
        f"settings of the node (default: {CONFIG_FILE})",
        default=CONFIG_FILE,
    )
    takes(
        status,
        "--unit NAME",
        "the unit (default: ledgermq.service; of another file, as n1.toml, ledgermq@n1.service)",
    )
    takes(status, "--events N", f"so many (default: {EVENTS})", default=EVENTS)
    takes(status, "--journal DIR", "journal files of another place")
    takes(status, "--json", "print JSON")
    status.set_defaults(func=_status)


def _status(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.events <= EVENTS_MAX:
        raise ConfigError(
            "--events is out of range", given=arguments.events, allowed=f"1 to {EVENTS_MAX}"
        )
    settings = load_settings(arguments.config)
    unit = look_at_unit(arguments.unit or unit_name(arguments.config))
    node, silence = _ask(RuntimePaths(settings.listen.runtime_dir).control)
    events = last_events(
        settings.node.self_id,
        arguments.events,
        uid=_account_of(settings.store.path_root_dir),
        journal=arguments.journal,
    )
    if arguments.json:
        print(json.dumps(to_json(unit, node, silence, events), indent=2))
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else 0
        for line in describe(unit, node, silence, events, width=width, colored=is_terminal):
            print(line, file=drawn(sys.stdout))
    return 0 if node is not None else EXIT_DOWN


def _account_of(root: Path) -> int:
    """Whose the store is, and so the node; of one that has none yet, who asks."""
    try:
        return root.stat().st_uid
    except OSError:
        return os.geteuid()


def _ask(path: Path) -> tuple[NodeStatus | None, str]:
    """The node's answer, or why there is none."""
    try:
        answer = control.ask(path, "status")
    except LedgerError as error:
        return None, str(error)
    return cast("NodeStatus", answer), ""


def describe(
    unit: Unit,
    node: NodeStatus | None,
    silence: str,
    events: LastEvents,
    *,
    width: int = 0,
    colored: bool = False,
) -> Iterator[str]:
    """All of it for people, line by line.

    Args:
        silence: why ``node`` is None.
        width: longest line; 0 for any, as whoever reads a pipe wants all of it.
        colored: for a terminal.
    """
    yield shown(f"unit        {describe_unit(unit)}")
    if unit.properties.get("StatusText"):
        yield shown(f"            {unit.properties['StatusText']}")
    if node is None:
        yield shown(f"node        does not run: {silence}")
    else:
        yield _first(node, colored=colored)
        yield from map(shown, _node(node))
    yield ""
    if events.why_not:
        yield shown(f"events      {events.why_not}")
        return
    yield f"events      the last {len(events.told)}"
    for told in events.told:
        yield _event(told, width=width, colored=colored)


def _first(node: NodeStatus, *, colored: bool) -> str:
    names = node["node"]
    waits = f", waiting for {node['waits_for']}" if node["waits_for"] else ""
    state = _painted(node["state"], node["state"], colored=colored)
    who = f"{names['self_id']} of {names['broker']} in {names['cluster']}"
    return (
        f"node        {shown(who)}: {state}{shown(waits)}, up for {duration_text(node['uptime_s'])}"
    )


def _node(node: NodeStatus) -> Iterator[str]:
    raft, cursors, disk = node["raft"], node["cursors"], node["disk"]
    yield from health_lines(node)
    yield (
        f"role        {raft['role']} in term {raft['term']};"
        f" {size_text(cursors['not_committed_bytes'])} to be committed,"
        f" {size_text(cursors['not_dispatched_bytes'])} to be dispatched"
    )
    yield (
        f"store       {disk['path']}: {disk['state']}, {size_text(disk['free'])} of"
        f" {size_text(disk['total'])} free"
    )
    # A node that was started by an earlier version tells nothing of its ports.
    for port in node.get("ports", []):
        held = f"held by systemd ({port['unit']})" if port["unit"] else "opened by the node itself"
        yield f"port        {port['address']} ({port['setting']}): {held}"
    if node.get("damage"):
        yield f"damage      log {node['damage']}"
    label = "processes"
    for process in node["processes"]:
        again = f", restarted {process['restarts']} times" if process["restarts"] else ""
        last = f", last {process['last_exit']}" if process["last_exit"] else ""
        yield (
            f"{label:<12}{process['role']:<12}{process['state']:<10}{process['pid'] or '-':>8}"
            f"{size_text(process['pss']):>12}{again}{last}"
        )
        label = ""


def _event(told: Told, *, width: int, colored: bool) -> str:
    at = told.at.isoformat(sep=" ", timespec="seconds")[:19]
    head = f"  {at}  "
    level = f"{told.level:<6}"
    rest = shown(f"{told.event:<24}{told.process}: {told.text}")
    room = width - len(head) - len(level)
    if 0 < room < len(rest):
        rest = f"{rest[: max(room - 1, 0)]}…"
    return f"{head}{_painted(level, told.level, colored=colored)}{rest}"


def _painted(text: str, kind: str, *, colored: bool) -> str:
    color, text = _COLORS.get(kind), shown(text)
    return f"\x1b[{color}m{text}\x1b[0m" if colored and color else text


def to_json(
    unit: Unit, node: NodeStatus | None, silence: str, events: LastEvents
) -> dict[str, object]:
    """All of it for programs."""
    return {
        "unit": {"name": unit.name, "why_not": unit.why_not or None, **unit.properties},
        "node": node,
        "why_no_node": silence or None,
        "events": [{**told._asdict(), "at": told.at.isoformat()} for told in events.told],
        "why_no_events": events.why_not or None,
    }
