"""Options that name the log behind sealed pieces, for what is told as of a moment."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_live_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take the store whose log goes on where pieces end."""
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="storePathRootDir of the same log: what is not sealed yet is read there",
    )
    parser.add_argument(
        "--runtime-dir",
        type=Path,
        metavar="DIR",
        help="listen.runtime_dir of its running node; without it the last seconds are missing",
    )
    parser.add_argument("--self-id", help="whose DLedger log, where there are several")
