"""Options for the sizes of queue and index files, and for how a store delays messages."""

from __future__ import annotations

import argparse

from ledgermq.model.config.settings import StoreSection


def add_size_options(parser: argparse.ArgumentParser) -> None:
    """Let ``parser`` take what ``store_section`` needs."""
    sizes = parser.add_argument_group(
        "sizes of queue and index files", "as in broker.conf; those of the files there, if any"
    )
    sizes.add_argument(
        "--queue-file-size", type=int, metavar="BYTES", help="mappedFileSizeConsumeQueue"
    )
    sizes.add_argument("--hash-slots", type=int, metavar="N", help="maxHashSlotNum")
    sizes.add_argument("--index-items", type=int, metavar="N", help="maxIndexNum")
    sizes.add_argument(
        "--delay-levels",
        metavar="TEXT",
        default=StoreSection().message_delay_level,
        help="messageDelayLevel, when it is not RocketMQ's default",
    )
    sizes.add_argument(
        "--no-index", action="store_true", help="the store has no index (messageIndexEnable=false)"
    )
