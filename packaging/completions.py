#!/usr/bin/env python3
"""Prints what completes the ``ledgermq`` command in a shell, made from its parsers.

completions.py bash|zsh|fish
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import shtab

from ledgermq.cli.main import whole_parser


def main() -> None:
    """Print the completion of the shell that the command line names."""
    parser = whole_parser()
    for action in _actions(parser):
        # An archive's DIR is no path to us, for it may be in a bucket; nor is a REPOSITORY.
        if action.type is Path or action.metavar in {"BACKUP", "DIR", "REPOSITORY"}:
            # A folder is where a file may be: shtab's DIRECTORY would hide the files in it.
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            # In a list of words the line of help is enough; it would be a page's first paragraph.
            for one in action._choices_actions:
                action.choices[one.dest].description = one.help
    print(shtab.complete(parser, shell=sys.argv[1]))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)


if __name__ == "__main__":
    main()
