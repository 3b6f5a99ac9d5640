"""A member of a group as a process, which appends what it is given to a file.

Lines: time (monotonic ns), name, queue, offset and body of each message, written before the commit.
Arguments: addresses, group, name, file, ``ordered`` or ``any``.
"""

from __future__ import annotations

import sys
import time

from ledgermq.client import GroupConsumer, GroupOptions
from ledgermq.client.reading.pull_pipeline import ConsumerOptions

BATCH_MAX = 10


def main() -> None:
    """Read until killed."""
    addresses, group, name, path, order = sys.argv[1:]
    options = ConsumerOptions(messages_max=BATCH_MAX, hold_ms=500, timeout_s=120.0)
    with (
        open(path, "a", buffering=1, encoding="ascii") as journal,
        GroupConsumer(
            addresses,
            group=group,
            name=name,
            group_options=GroupOptions(ordered=order == "ordered"),
            options=options,
        ) as consumer,
    ):
        consumer.subscribe("orders")
        while True:
            batch = consumer.poll(0.5)
            for message in batch:
                body = bytes(message.body).decode()
                at, queue = time.monotonic_ns(), batch.queue_id
                journal.write(f"{at} {name} {queue} {message.queue_offset} {body}\n")
            if len(batch):
                consumer.commit()


if __name__ == "__main__":
    main()
