"""A program at a terminal of its own, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import pyte

from ledgermq.cli.top.top_live import DRAWING, DRAWN
from tests.process.conftest import SOURCES, wait_until
from tests.process.node_start import start_node
from tests.readable import is_readable

LOOK_S = 0.05
READ_SIZE = 65_536

_AT_A_TERMINAL = """
import fcntl, os, signal, sys, termios
from ledgermq.cli.main import main
# A session whose terminal it is: signals about its size are sent to that. Whoever runs the tests in
# the background has Ctrl-C ignored, which a program would inherit.
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


class PtyProgram:
    """The ``ledgermq`` command with ``words``; it is told that its terminal is that large."""

    def __init__(self, words: Sequence[str], *, columns: int = 80, lines: int = 24) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._written = b""
        self._terminal, inner = pty.openpty()
        self._set_size(columns, lines)
        self.process = start_node(
            ["-c", _AT_A_TERMINAL, *words], given=inner, output=inner,
            environment={
                **os.environ,
                "PYTHONPATH": str(SOURCES),
                "TERM": "xterm-256color",
                # As some shells hand them on; the terminal itself knows better.
                "COLUMNS": "80",
                "LINES": "24",
            },
        )  # fmt: skip
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the terminal that large."""
        self._screen.resize(lines, columns)
        self._set_size(columns, lines)

    def lines(self) -> list[str]:
        """What the screen shows now."""
        while is_readable(self._terminal, LOOK_S):
            try:
                data = os.read(self._terminal, READ_SIZE)
            except OSError:
                # The program has ended, and with it the other end.
                break
            self._stream.feed(data)
            self._written += data
        return [line.rstrip() for line in self._screen.display]

    def wait_for(self, text: str) -> list[str]:
        """The screen, once it shows ``text``."""
        return self.wait_until(lambda lines: any(text in line for line in lines), repr(text))

    def wait_until(self, condition: Callable[[list[str]], bool], what: str) -> list[str]:
        """The screen, once it is as it should be."""

        def shown() -> list[str] | None:
            lines = self.lines()
            return lines if self._is_drawn() and condition(lines) else None

        try:
            found: list[str] = wait_until(shown, f"{what} on the screen")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.lines()])) from error
        return found

    def _is_drawn(self) -> bool:
        """Whether the screen shows a whole picture, not the beginning of one."""
        begun = self._written.rfind(DRAWING.encode())
        if begun < 0:
            return False
        # What was drawn before needs not be kept.
        self._written = self._written[begun:]
        return DRAWN.encode() in self._written

    def wait_end(self) -> int:
        """The exit status, once the program has ended; what it says meanwhile is read."""

        def ended() -> bool:
            self.lines()
            return self.process.poll() is not None

        wait_until(ended, "the end of the program")
        assert self.process.returncode is not None
        return self.process.returncode

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
