"""``ledgermq status``: status of the node in a runtime directory.

Exit status: 0 a node answered (and is ready, if that was asked for); 1 the settings or the command
line; 2 no node is running there, or it is not ready in time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ledgermq.cli.arguments import takes
from ledgermq.model.config import amounts
from ledgermq.model.config.settings import ListenSection
from ledgermq.model.errors import StorageError, TimedOutError
from ledgermq.model.features import LEVEL, version_of
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.settings_loading import load_settings

if TYPE_CHECKING:
    from ledgermq.daemon.health.status import NodeStatus, ProcessStatus

ASK_AGAIN_S = 0.05
READY = "ready"
SET_ASIDE_SHOWN_MAX = 5
DAMAGES_SHOWN_MAX = 10

_WAITING = {
    "delayed_waiting": "delayed",
    "timers_waiting": "timers",
    "half_messages_waiting": "half messages",
}
_GROUPS = ("groups_consuming", "members", "groups_differing")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``status``."""
    parser = subparsers.add_parser(
        "status",
        help="show what a node on this machine is doing",
        description="Exit status 2 when no node is running there, or it is not ready in time.",
    )
    where = parser.add_mutually_exclusive_group()
    takes(where, "--runtime-dir DIR", "listen.runtime_dir")
    takes(where, "--config FILE", "settings that name it")
    takes(parser, "--json", "print JSON")
    takes(parser, "--wait-ready SECONDS", "wait until the node can serve")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    path = RuntimePaths(_runtime_dir(arguments)).control
    wait_s: float | None = arguments.wait_ready
    status = _ask(path) if wait_s is None else _wait_until_ready(path, wait_s)
    if arguments.json:
        print(json.dumps(status, indent=2))
    else:
        print("\n".join(describe(status)))
    return 0


def describe(status: NodeStatus) -> Iterator[str]:
    """The status for people, line by line."""
    node = status["node"]
    waits = f", waiting for {status['waits_for']}" if status["waits_for"] else ""
    yield f"node        {node['self_id']} of {node['broker']} in {node['cluster']}"
    yield f"state       {status['state']}{waits}, up for {duration_text(status['uptime_s'])}"
    yield from health_lines(status)
    if any(process["role"] == "writer" for process in status["processes"]):
        yield from _of_member(status)
    else:
        yield "role        witness without bodies: it votes, and holds no messages"
        yield from _disk(status)
        yield "            what it voted for and who leans on it: ledgermq raft status"
        yield ""
    yield from _process_table(status["processes"])
    yield ""
    yield from _damages(status)
    # A node of an older version says nothing of it.
    if aside := status.get("set_aside"):
        named = ", ".join(
            [*aside[:SET_ASIDE_SHOWN_MAX], *["…"][: len(aside) > SET_ASIDE_SHOWN_MAX]]
        )
        yield f"set aside   {len(aside)} in ledgermq/set-aside, of no use to a start: {named}"
    versions = ", ".join(f"{name} {text}" for name, text in status["versions"].items())
    yield f"versions    {versions}, {status['kernel']} kernel"


def _of_member(status: NodeStatus) -> Iterator[str]:
    """Lines about a node with a log: its role, how far the log is, and what the services hold."""
    raft, cursors, lock = status["raft"], status["cursors"], status["put_lock"]
    # Only of a leader that is news: the writer of another member takes what the leader sends.
    waits = raft["role"] == "leader" and not raft["granted"]
    yield f"role        {raft['role']} in term {raft['term']}" + (
        ", the writer may not write yet" if waits else ""
    )
    if raft["stage"]:
        yield f"stage       {raft['stage']}"
    if raft["broker_id"] >= 0:
        yield f"broker id   {raft['broker_id']}"
    yield f"ack         {status['ack_mode']}"
    yield from _disk(status)
    if status.get("damage"):
        yield f"damage      log {status['damage']}"
    yield ""
    yield f"{'cursor':<12}{'position':>20}{'index':>16}{'behind':>12}"
    behind = {
        "written": 0,
        "durable": cursors["not_durable_bytes"],
        "committed": cursors["not_committed_bytes"],
    }
    for name, cursor in (
        ("written", cursors["written"]),
        ("durable", cursors["durable"]),
        ("committed", cursors["committed"]),
    ):
        lag = size_text(behind[name])
        yield f"{name:<12}{cursor['position']:>20,}{cursor['index']:>16,}{lag:>12}"
    lag = size_text(cursors["not_dispatched_bytes"])
    yield f"{'dispatched':<12}{cursors['dispatched']:>20,}{'':>16}{lag:>12}"
    yield ""
    held = f"held by {lock['holder']} for {lock['held_ms']} ms" if lock["holder"] else "free"
    yield (
        f"put lock    {held}; taken {lock['taken']:,}, slow {lock['slow']:,}, "
        f"recovered {lock['recovered']:,}"
    )
    yield from _services(status["counters"].get("broker", {}))
    yield from _levels(status["counters"])
    yield from _archives(status["counters"].get("broker", {}), cursors["dispatched"])
    if any(process["role"] == "cold" for process in status["processes"]):
        yield _pieces(status["counters"].get("cold", {}), cursors["committed"]["position"])
    yield ""


def _disk(status: NodeStatus) -> Iterator[str]:
    disk = status["disk"]
    yield f"store       {disk['path']}: {size_text(disk['used_by_store'])} used, " + (
        f"{size_text(disk['free'])} of {size_text(disk['total'])} free"
        + ("" if disk["state"] == "roomy" else f"; {disk['state']}: producers are refused")
        + ("; dispatch waits for space" if disk["dispatch_waits"] else "")
    )


def health_lines(status: NodeStatus) -> Iterator[str]:
    """Why the node does not serve, and the page that helps; nothing while it starts or stops."""
    # A node that was started by an earlier version tells no health; what it waits for is told.
    health = status.get("health")
    for reason in health["reasons"] if health and not status["waits_for"] else ():
        yield f"            {reason['text']}: {reason['see']}"


def _services(counters: Mapping[str, int]) -> Iterator[str]:
    """What the broker's services hold now; groups and half messages are the leader's alone."""
    count = {name: counters.get(name, 0) for name in (*_WAITING, *_GROUPS)}
    yield "waiting     " + ", ".join(f"{text} {count[name]:,}" for name, text in _WAITING.items())
    yield (f"groups      {count['groups_consuming']:,} consuming with {count['members']:,} members")
    if count["groups_differing"]:
        yield (
            f"            members of {count['groups_differing']:,} want different things: "
            "ledgermq top, ledgermq group show GROUP"
        )


def _levels(counters: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """The feature level in force, and what is to be done about it."""
    broker = counters.get("broker", {})
    in_force, needed = broker.get("feature_level", 0), broker.get("level_needed", 0)
    known = min(LEVEL, broker.get("level_to_enable", 0))
    hint = ""
    if needed:
        hint = (
            f"; held up: the log needs level {needed}, which version {version_of(needed)} knows:"
            " docs/operating/new-version.md"
        )
    elif known > in_force:
        hint = f", all members know {known}: ledgermq cluster features --enable"
    yield f"features    level {in_force}{hint}"


def _archives(counters: Mapping[str, int], dispatched: int) -> Iterator[str]:
    """How far the archives are that retention waits for; nothing when it waits for none."""
    count = counters.get("archives", 0)
    if count:
        behind = size_text(max(0, dispatched - counters.get("archived_position", 0)))
        yield f"archives    {count}, of which the last one lacks {behind}: ledgermq archive list"


def _pieces(counters: Mapping[str, int], committed: int) -> str:
    """How far the pieces are that retention waits for."""
    away_s, sealed = counters.get("away_since", 0), counters.get("sealed_position", 0)
    if away_s:
        since = datetime.fromtimestamp(away_s, UTC).isoformat(timespec="seconds")
        return f"pieces      away since {since}; retention waits for them"
    if not sealed:
        return "pieces      not read through yet; retention waits for them"
    behind = size_text(max(0, committed - sealed))
    return f"pieces      they lack {behind} of the log: ledgermq piece seal"


def _damages(status: NodeStatus) -> Iterator[str]:
    """What of the log is damaged now, and what was repaired; nothing when there was never any."""
    counters = status["counters"].get("raft", {})
    damages = status["damages"]
    repaired = counters.get("repaired_entries", 0)
    if not damages and not repaired:
        return
    places = "place" if len(damages) == 1 else "places"
    yield (
        f"damage      {len(damages)} {places}, {counters.get('damaged_entries', 0):,} entries; "
        f"repaired since the start: {repaired:,} entries, "
        f"{size_text(counters.get('repaired_bytes', 0))}"
    )
    for damage in damages[:DAMAGES_SHOWN_MAX]:
        state = damage["unrepairable"] or "is being repaired"
        yield (
            f"            index {damage['first_index']} to {damage['last_index']}, "
            f"{damage['file']} at {damage['offset']} ({damage['fault']}): {state}"
        )
    if any(damage["unrepairable"] for damage in damages):
        yield "            see docs/operating/check-and-repair.md"
    yield ""


def _process_table(processes: list[ProcessStatus]) -> Iterator[str]:
    yield (
        f"{'process':<12}{'pid':>8}  {'state':<10}{'pss':>10}{'rss':>10}{'cpu':>8}"
        f"{'beat':>10}{'restarts':>10}  last exit"
    )
    for process in processes:
        cpu, beat = process["cpu_percent"], process["beat_age_ms"]
        yield (
            f"{process['role']:<12}{process['pid'] or '-':>8}  {process['state']:<10}"
            f"{size_text(process['pss']):>10}{size_text(process['rss']):>10}"
            f"{'-' if cpu is None else f'{cpu:.1f} %':>8}"
            f"{'-' if beat is None else f'{beat} ms':>10}"
            f"{process['restarts']:>10}  {process['last_exit'] or '-'}"
        )


def _runtime_dir(arguments: argparse.Namespace) -> Path:
    directory: Path | None = arguments.runtime_dir
    config: Path | None = arguments.config
    if directory is not None:
        return directory
    return load_settings(config).listen.runtime_dir if config else ListenSection().runtime_dir


def _ask(path: Path) -> NodeStatus:
    return cast("NodeStatus", control.ask(path, "status"))


def _wait_until_ready(path: Path, wait_s: float) -> NodeStatus:
    """The status of a node that is ready.

    Raises:
        StorageError: it is not, in time.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            status = _ask(path)
            if status["state"] == READY:
                return status
            waits = f", waiting for {status['waits_for']}" if status["waits_for"] else ""
            reasons = "".join(f"; {line.strip()}" for line in health_lines(status))
            reason = f"{status['state']}{waits}{reasons}"
        except (StorageError, TimedOutError) as error:
            reason = error.message
        if time.monotonic() >= deadline:
            raise StorageError(f"the node is not ready: {reason}", path=str(path), waited_s=wait_s)
        time.sleep(ASK_AGAIN_S)


def size_text(size: int | None) -> str:
    """Bytes for people; a dash where nobody knows them."""
    return "-" if size is None else amounts.size_text(size)


def duration_text(seconds: float) -> str:
    """A duration for people, in its two largest units."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
