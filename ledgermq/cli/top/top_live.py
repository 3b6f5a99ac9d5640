"""Pictures of ``ledgermq top`` in a terminal: a single one, or one after each look and key."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from ledgermq.cli.seen_text import drawn
from ledgermq.cli.top.top_figures import ClusterFigures, SortOrder, figures
from ledgermq.cli.top.top_look import ClusterLooks, ClusterWatch, Look
from ledgermq.cli.top.top_screen import Choice, screen
from ledgermq.cli.top.top_terminal import END, ESCAPE, Terminal

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
