"""Late command: a function of another module, which is imported when the command runs.

``--help`` of a command imports the module of its options alone, and needs none of the libraries
that the command itself does.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import NamedTuple, cast

Run = Callable[[argparse.Namespace], int]


class LateCommand(NamedTuple):
    """What ``func`` of a parser is set to: ``(arguments) -> exit status``.

    Attributes:
        module: name below ``ledgermq.cli``.
        function: its name there.
    """

    module: str
    function: str

    def find(self) -> Run:
        """The function; its module is imported now."""
        found = getattr(importlib.import_module(f"ledgermq.cli.{self.module}"), self.function)
        return cast("Run", found)

    def __call__(self, arguments: argparse.Namespace) -> int:
        """Run the command; the exit status."""
        return self.find()(arguments)
