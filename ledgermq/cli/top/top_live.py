"""Pictures of ``ledgermq top`` in a terminal: a single one, or one after each look and key."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import NamedTuple, Self

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ledgermq.cli.node.status_command import duration_text, size_text
from ledgermq.cli.seen_text import all_shown, drawn
from ledgermq.cli.top.top_figures import (
    ClusterFigures,
    GroupFigures,
    NodeFigures,
    SortOrder,
    figures,
    sorted_groups,
)
from ledgermq.cli.top.top_look import ClusterLooks, ClusterWatch, Look
from ledgermq.model.errors import ConfigError

PROCESSES = ("supervisor", "raft", "writer", "dispatcher", "broker")
KEYS = "q quit  p pause  s sort  n node  g group  esc all"
WARNINGS_MAX = 5

WAITING = {
    "delayed_waiting": "delayed",
    "timers_waiting": "timers",
    "half_messages_waiting": "half",
}

MIRRORS_MAX = 5
"""Mirrors that have a line; ``--json`` has all."""

NODE_ROWS = 3
"""Tables that have a row of each node."""

OTHER_ROWS = 11
"""Head, titles of tables, lines between them, keys."""

GROUPS_MIN = 3


_ROLE_STYLES = {"leader": "bold green", "mirror": "cyan"}


class Choice(NamedTuple):
    """What the reader wants to see.

    ``node``, ``group``: shown alone and in full, by name; empty: all.
    """

    order: SortOrder = SortOrder.LAG
    paused: bool = False
    node: str = ""
    group: str = ""


def screen(found: ClusterFigures, choice: Choice, *, height: int | None) -> RenderableType:
    """All that fits on ``height`` lines; ``None``: everything."""
    # Drawn on the terminal itself: what others have named does nothing there.
    found, choice = all_shown(found), all_shown(choice)
    parts: list[RenderableType] = [_head(found, choice), Text()]
    node = next((one for one in found.nodes if one.name == choice.node), None)
    group = next((one for one in found.groups if one.group == choice.group), None)
    if choice.node and node is not None:
        parts += _node_in_full(node)
    elif choice.group and group is not None:
        parts += _group_in_full(group)
    else:
        parts += [
            _rates(found.nodes),
            *_reasons(found.nodes),
            *_places(found.nodes),
            Text(),
            _disks(found.nodes),
            Text(),
            _memory(found.nodes),
        ]
        mirrors = _mirrors(found)
        left = None if height is None else height - len(mirrors)
        parts += [*mirrors, _services(found.nodes), *_groups(found, choice, left)]
    if height is not None:
        parts += [Text(), Text(KEYS, style="dim", no_wrap=True, overflow="ellipsis")]
    return Group(*parts)


def _head(found: ClusterFigures, choice: Choice) -> Text:
    at = datetime.fromtimestamp(found.at_ms / 1_000, UTC)
    there = sum(1 for node in found.nodes if not node.away)
    asked = sum(1 for node in found.nodes if node.role != "witness")
    terms = [node.term for node in found.nodes if node.role == "leader"]
    leader = next(
        (one.name for one in found.nodes if one.role == "leader" and one.term == max(terms)), "none"
    )
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{found.cluster or 'no node answers'}", style="bold")
    text.append(f"  {at:%H:%M:%S} UTC  {there} of {asked} nodes  leader {leader}")
    if choice.paused:
        text.append("  PAUSED", style="bold yellow")
    return text


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    """Columns of text, the last of which gives way when it is narrow, then columns of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold reverse")
    for number, name in enumerate(left):
        # The name of a node or a group is what gives way when it is narrow.
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=4 if number else 5)
    for name in right:
        table.add_column(name, no_wrap=True, justify="right", overflow="ellipsis")
    return table


def _rates(nodes: Sequence[NodeFigures]) -> Table:
    table = _table(
        ["NODE", "ROLE", "TERM"],
        ["IN/s", "IN B/s", "OUT/s", "OUT B/s", "BEHIND", "DISPATCH"],
    )
    for node in nodes:
        if node.away:
            table.add_row(node.name or "?", node.role or ("away" if node.address else "-"))
            continue
        rates = node.rates
        is_late = node.role != "leader" and (node.behind is None or node.behind > 0)
        table.add_row(
            node.name,
            Text(node.role, style=_ROLE_STYLES.get(node.role, "")),
            f"{node.term}",
            _number(rates.in_messages),
            _bytes(rates.in_bytes),
            _number(rates.out_messages),
            _bytes(rates.out_bytes),
            Text(_bytes(node.behind), style="yellow" if is_late else ""),
            _bytes(node.dispatch_behind),
        )
    return table


def _reasons(nodes: Sequence[NodeFigures]) -> list[Text]:
    """Why nodes told nothing; not within the table, whose columns a sentence would narrow."""
    return [
        Text(
            f"{node.name or node.address or '?'}: {node.away}",
            style="red" if node.address else "dim",
            no_wrap=True,
            overflow="ellipsis",
        )
        for node in nodes
        if node.away and not node.role
    ]


def _places(nodes: Sequence[NodeFigures]) -> list[Text]:
    """Where members read what their logs have no more, if they differ in it."""
    places = {node.name: node.cold_place or "none" for node in nodes if not node.away}
    if len(set(places.values())) < 2:
        return []
    told = ", ".join(f"{name} {place}" for name, place in places.items())
    return [
        Text(f"cold.place differs: {told}", style="red", no_wrap=True, overflow="ellipsis"),
    ]


def _disks(nodes: Sequence[NodeFigures]) -> Table:
    table = _table(
        ["NODE", "STAGE", "DISK"],
        ["LOG", "FREE", "OF", "USED", "RESERVE", "UP"],
    )
    for node in nodes:
        disk = node.disk
        if disk is None:
            continue
        used = 100 * (1 - disk["free"] / disk["total"]) if disk["total"] else 0.0
        table.add_row(
            node.name,
            node.stage or "-",
            Text(disk["state"], style="" if disk["state"] == "roomy" else "bold red"),
            _bytes(disk["log"]),
            _bytes(disk["free"]),
            _bytes(disk["total"]),
            f"{used:.0f}%",
            Text(
                _bytes(disk["reserve"]),
                style="" if disk["reserve"] >= disk["reserve_max"] else "bold red",
            ),
            duration_text(node.uptime_s),
        )
    return table


def _memory(nodes: Sequence[NodeFigures]) -> Table:
    has_ports = any(_port_memory(node) for node in nodes)
    names = [*PROCESSES, "ports", "all"] if has_ports else [*PROCESSES, "all"]
    table = _table(["MEMORY"], [name.upper() for name in names])
    for node in nodes:
        if node.away:
            continue
        sizes = [node.memory.get(name) for name in PROCESSES]
        if has_ports:
            sizes.append(sum(_port_memory(node)))
        known = [size for size in sizes if size is not None]
        table.add_row(node.name, *map(_bytes, sizes), _bytes(sum(known)) if known else "-")
    return table


def _port_memory(node: NodeFigures) -> list[int]:
    """Memory of the processes that serve RocketMQ's clients beside the broker, in bytes."""
    return [size or 0 for name, size in node.memory.items() if name not in PROCESSES]


def _services(nodes: Sequence[NodeFigures]) -> Text:
    """What waits at the leader, and what its services do a second; only what is not zero."""
    text = Text(no_wrap=True, overflow="ellipsis")
    leader = max((one for one in nodes if one.role == "leader"), key=_term, default=None)
    if leader is None:
        return text
    counters = leader.counters.get("broker", {})
    waits = [f"{name} {counters[key]:,}" for key, name in WAITING.items() if counters.get(key)]
    does = [f"{name} {_number(rate)}/s" for name, rate in leader.services.items() if rate]
    text.append("SERVICES ", style="bold")
    if leader.unarchived is not None:
        does.append(f"archives lack {_bytes(leader.unarchived)}")
    text.append(" ".join([f"waiting: {', '.join(waits) or 'nothing'}", *does]))
    return text


def _mirrors(found: ClusterFigures) -> list[Text]:
    """A line of each mirror: of nodes that are one, and of those that the leader knows."""
    lines = [
        f"MIRROR {node.name}, read only: lacks {node.mirror.messages:,} messages,"
        f" {_bytes(node.mirror.bytes)}, lags {duration_text(node.mirror.seconds)}"
        for node in found.nodes
        if node.mirror is not None
    ]
    lines += [
        f"MIRROR at {one.mirror}: lacks {_bytes(one.behind)}, by what it told"
        f" {duration_text(one.told_s)} ago"
        for one in found.mirrors[:MIRRORS_MAX]
    ]
    more = len(found.mirrors) - MIRRORS_MAX
    lines += [f"and {more:,} mirrors more"] if more > 0 else []
    texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
    if found.mirrors_why and not found.groups_why:
        texts.append(Text(f"mirrors: {found.mirrors_why}", style="yellow"))
    return texts


def _term(node: NodeFigures) -> int:
    return node.term


def _groups(found: ClusterFigures, choice: Choice, height: int | None) -> list[RenderableType]:
    if found.groups_why:
        return [Text(f"groups: {found.groups_why}", style="yellow")]
    if not found.groups:
        return [Text("no group has consumed anything yet", style="dim")]
    ordered = sorted_groups(found.groups, choice.order)
    if height is not None:
        rows = height - OTHER_ROWS - NODE_ROWS * len(found.nodes)
        ordered = ordered[: max(GROUPS_MIN, rows)]
    table = _table(["GROUP", "NOTE"], ["MEMBERS", "TOPICS", "CONSUMED/s", "LAG"])
    for group in ordered:
        table.add_row(
            group.group,
            Text("members differ", style="yellow") if group.warnings else "",
            f"{group.members}",
            f"{group.topic_count}",
            _number(group.rate),
            _number(float(group.lag)),
        )
    more = "" if found.groups_complete else ", still being counted"
    title = (
        f"{len(ordered)} of {found.group_count} groups by {choice.order}, "
        f"lag of all {found.group_lag:,}{more}"
    )
    return [Text(title, no_wrap=True, overflow="ellipsis"), table]


def _node_in_full(node: NodeFigures) -> list[RenderableType]:
    parts: list[RenderableType] = [_rates([node]), *_reasons([node]), Text()]
    if node.away:
        return parts
    parts += [_disks([node]), Text()]
    processes = _table(["PROCESS"], ["MEMORY", "CPU"])
    for name in dict.fromkeys((*PROCESSES, *node.memory)):
        percent = node.cpu.get(name)
        cpu = "-" if percent is None else f"{percent:.1f} %"
        processes.add_row(name, _bytes(node.memory.get(name)), cpu)
    parts += [processes, Text()]
    parts += [
        Text(f"{name}: {_counted(counters)}")
        for name, counters in node.counters.items()
        if any(counters.values())
    ]
    parts += [
        Text(f"group {group}: {warning}", style="yellow")
        for group, warnings in list(node.differing.items())[:WARNINGS_MAX]
        for warning in warnings[:1]
    ]
    return parts


def _counted(counters: Mapping[str, int]) -> str:
    return "  ".join(f"{name} {count:,}" for name, count in counters.items() if count)


def _group_in_full(group: GroupFigures) -> list[RenderableType]:
    rate = _number(group.rate)
    head = Text(f"group {group.group}: {group.members} members, lag {group.lag:,}, {rate}/s")
    table = _table(["TOPIC"], ["LAG"])
    for topic, lag in group.topics.items():
        table.add_row(topic, f"{lag:,}")
    more = group.topic_count - len(group.topics)
    parts: list[RenderableType] = [head, Text(), table]
    if more > 0:
        parts.append(Text(f"and {more:,} topics more", style="dim"))
    parts += [Text(warning, style="yellow") for warning in group.warnings[:WARNINGS_MAX]]
    return parts


def _number(amount: float | None) -> str:
    """An amount with at most six letters."""
    if amount is None:
        return "-"
    if amount < 99_999.5:
        return f"{amount:,.0f}"
    for unit in "kMG":
        amount /= 1_000
        if amount < 9_999.5:
            return f"{amount:.0f}{unit}"
    return f"{amount / 1_000:,.0f}T"


def _bytes(amount: float | None) -> str:
    return "-" if amount is None else size_text(round(amount)).replace("iB", "").replace(" ", "")


WIDTH = 80


def print_once(found: ClusterFigures, arguments: argparse.Namespace) -> None:
    """Print one picture, as wide as the terminal."""
    console = Console(file=drawn(sys.stdout))
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(screen(found, _first_choice(arguments), height=None))


def _first_choice(arguments: argparse.Namespace) -> Choice:
    return Choice(order=SortOrder(arguments.sort))


def show_live(looks: ClusterLooks, arguments: argparse.Namespace) -> None:
    """Draw until the reader has seen enough."""
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


ESCAPE = "esc"
END = "end"
"""The terminal is gone, or somebody wants the program to end."""

_KEYS_SIZE_MAX = 64

DRAWING, DRAWN = "\x1b[?2026h", "\x1b[?2026l"
"""Marks around each picture: terminals that know synchronized updates show it as a whole, others
pass the marks over."""


class Terminal:
    """The process's terminal while it is drawn on; a context that gives it back as it was.

    Attributes:
        console: what is drawn on; as large as the terminal was in ``measure``.
    """

    def __init__(self) -> None:
        """Take the terminal.

        Raises:
            ConfigError: input or output is none, or one that cannot be drawn on.
        """
        self.console = Console(file=drawn(sys.stdout))
        if not (sys.stdin.isatty() and self.console.is_terminal):
            raise ConfigError("not at a terminal: use --once, and --json for programs")
        if self.console.is_dumb_terminal:
            raise ConfigError(
                "terminal cannot be drawn on: use --once", TERM=os.environ.get("TERM", "")
            )
        self._is_ending = False
        self._stack = ExitStack()
        self._input = sys.stdin.fileno()
        self._bell, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stack.callback(os.close, self._bell)
        self._stack.callback(os.close, self._ring)
        # A signal may reach another thread than the one that waits for keys.
        before = signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)
        self._stack.callback(signal.set_wakeup_fd, before)
        self._stack.enter_context(_single_keys(self._input))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
            self._stack.callback(signal.signal, number, signal.signal(number, self._signalled))
        self._live = self._stack.enter_context(
            Live(console=self.console, screen=True, auto_refresh=False)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def draw(self, content: RenderableType) -> None:
        """Show ``content`` instead of what was there."""
        self.console.file.write(DRAWING)
        self._live.update(content, refresh=True)
        self.console.file.write(DRAWN)
        self.console.file.flush()

    def measure(self) -> int:
        """Take note of the terminal's size; its lines."""
        # By itself the library believes COLUMNS and LINES, which some shells hand on: they stay.
        columns, lines = os.get_terminal_size(self._input)
        self.console.size = ConsoleDimensions(columns, lines)
        return lines

    def ring(self) -> None:
        """Have ``typed`` return; may be called by any thread."""
        try:
            os.write(self._ring, b"!")
        except BlockingIOError:
            # Enough rings wait there already.
            return

    def typed(self) -> list[str]:
        """Wait for keys, a ring, or another size of the terminal: the keys, ``END`` at the end."""
        ready, _, _ = select.select([self._input, self._bell], [], [])
        if self._bell in ready:
            os.read(self._bell, _KEYS_SIZE_MAX)
        if self._is_ending:
            return [END]
        if self._input not in ready:
            return []
        try:
            typed = os.read(self._input, _KEYS_SIZE_MAX)
        except OSError:
            # What was at the other end of the terminal has gone.
            return [END]
        return list(_named(typed.decode(errors="replace"))) if typed else [END]

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGWINCH:
            self._is_ending = True


@contextmanager
def _single_keys(terminal: int) -> Iterator[None]:
    """Keys come as they are typed, and are not shown."""
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _named(typed: str) -> Iterator[str]:
    """Keys one by one; those that send more than a letter, as arrows do, mean nothing here."""
    if typed.startswith("\x1b"):
        if typed == "\x1b":
            yield ESCAPE
        return
    yield from typed
