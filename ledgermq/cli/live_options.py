"""Options that name the log behind sealed pieces, for what is told as of a moment."""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import takes


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
