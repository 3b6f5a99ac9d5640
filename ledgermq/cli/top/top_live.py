"""Pictures of ``ledgermq top`` in a terminal: a single one, or one after each look and key."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Self

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

from ledgermq.cli.seen_text import drawn
from ledgermq.cli.top.top_figures import ClusterFigures, SortOrder, figures
from ledgermq.cli.top.top_look import ClusterLooks, ClusterWatch, Look
from ledgermq.cli.top.top_screen import Choice, screen
from ledgermq.model.errors import ConfigError

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
