"""A member of a consumer group in all groups of a cluster as a process, which prints what it reads.

Lines: group of brokers, queue, offset and body of each message, written before the commit.
Arguments: address, topic, name.
"""

from __future__ import annotations

import sys

from ledgermq.client import GroupConsumer, GroupOptions
from ledgermq.client.reading.pull_pipeline import ConsumerOptions

BATCH_MAX = 5


def main() -> None:
    """Read until killed."""
    address, topic, name = sys.argv[1:]
    with GroupConsumer(
        address,
        group="billing",
        name=name,
        group_options=GroupOptions(ordered=True),
        options=ConsumerOptions(messages_max=BATCH_MAX, hold_ms=500, timeout_s=120.0),
    ) as consumer:
        consumer.subscribe(topic)
        while True:
            batch = consumer.poll(0.5)
            group = batch.broker_group
            for message in batch:
                body = bytes(message.body).decode()
                print(group, message.queue_id, message.queue_offset, body, flush=True)
            if group:
                consumer.commit()


if __name__ == "__main__":
    main()
