"""Words and options of commands, each told with what its value is: ``--out DIR``, ``topic TOPIC``.

What a value is called says what it is made into, so that both cannot differ: ``N`` is a whole
number in each command, ``DIR`` a path. Options that several commands have stand here, too, and how
a command is given that another module has.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.model.config.settings import StoreSection

Run = Callable[[argparse.Namespace], int]


class LateCommand(NamedTuple):
    """What ``func`` of a parser is set to: ``(arguments) -> exit status``. Its module is imported
    when the command runs: ``--help`` needs none of the libraries that the command itself does.

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


KINDS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("N", "BYTES", "MS", "OFFSET", "QUEUE"), int),
    **dict.fromkeys(("FILE", "DIR"), Path),
    "SECONDS": float,
}
"""What values of these names are made into; all others stay texts."""


def takes(
    parser: argparse._ActionsContainer, words: str, text: str | None = None, /, **more: Any
) -> None:
    """Let ``parser`` take a word, an option with a value, or one that is given or not.

    Args:
        words: its name, and what its value is called; an option without that has none.
        text: what ``--help`` says of it.
        more: as of ``ArgumentParser.add_argument``; a ``type`` is taken in the place of that which
            the value's name stands for.
    """
    name, _, value = words.partition(" ")
    if value:
        more = {"metavar": value, "type": KINDS.get(value), **more}
    elif name.startswith("--") and not more.keys() & {"action", "choices", "type"}:
        more["action"] = "store_true"
    parser.add_argument(name, help=text, **more)


NAME = "ledgermq-cli"
"""What a node's operator sees of a command."""


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--address``, ``--timeout`` and ``--json``."""
    takes(
        parser,
        "--address ADDRESS",
        "ipc:// and the node's runtime directory, or tcp://HOST:PORT of its consume socket; "
        f"of several nodes of a group, divided by commas (default: {DEFAULT_ADDRESS})",
        default=DEFAULT_ADDRESS,
    )
    takes(parser, "--timeout SECONDS", "how long the node may take (default: 15)", default=15.0)
    takes(parser, "--json", "print JSON")


def add_cluster_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--cluster``: what is changed is that of all groups."""
    takes(parser, "--cluster", "for all groups of the cluster; is asked of its home")


def add_size_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take what ``store_section`` needs."""
    sizes = parser.add_argument_group(
        "sizes of queue and index files", "as in broker.conf; those of the files there, if any"
    )
    takes(sizes, "--queue-file-size BYTES", "mappedFileSizeConsumeQueue")
    takes(sizes, "--hash-slots N", "maxHashSlotNum")
    takes(sizes, "--index-items N", "maxIndexNum")
    takes(
        sizes,
        "--delay-levels TEXT",
        "messageDelayLevel, when it is not RocketMQ's default",
        default=StoreSection().message_delay_level,
    )
    takes(sizes, "--no-index", "the store has no index (messageIndexEnable=false)")


def add_live_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take the store whose log goes on where pieces end."""
    takes(
        parser,
        "--store DIR",
        "storePathRootDir of the same log: what is not sealed yet is read there",
    )
    takes(
        parser,
        "--runtime-dir DIR",
        "listen.runtime_dir of its running node; without it the last seconds are missing",
    )
    takes(parser, "--self-id SELF_ID", "whose DLedger log, where there are several")
