"""Terminal of ``top``: drawn as a whole, with keys one by one."""

from __future__ import annotations

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
from ledgermq.model.errors import ConfigError

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
