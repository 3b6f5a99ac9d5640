"""Options for the sizes of queue and index files, and for how a store delays messages."""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import takes
from ledgermq.model.config.settings import StoreSection


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
