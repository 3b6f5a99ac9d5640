"""Have messages delivered later, and take one back before its time; asyncio.

python examples/remind_later.py ipc:///run/ledgermq
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from ledgermq.client.aio import AsyncConsumer, AsyncProducer

TOPIC = "reminders"
UNPAID = {b"order 1": 1.5, b"order 2": 60.0, b"order 3": 0.5}
"""Seconds after which a customer is reminded; days in real life."""


async def main(address: str) -> None:
    """Three reminders, of which one is not needed any more; print the others as they come."""
    async with AsyncProducer(address) as producer:
        begin = (await producer.send(TOPIC, b"opening", queue_id=0)).queue_offset
        reminders = {
            order: await producer.submit(TOPIC, order, queue_id=0, delay=timedelta(seconds=seconds))
            for order, seconds in UNPAID.items()
        }
        # Order 2 was paid.
        await producer.cancel((await reminders[b"order 2"]).unique_id)
        await producer.send(TOPIC, b"all orders", queue_id=0, delay_level=2)
    left = 3
    async with AsyncConsumer(address, topic=TOPIC, queues=[0], start={0: begin + 1}) as consumer:
        async for message in consumer:
            print(message.text())
            left -= 1
            if not left:
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
