"""Ask for a price, and wait for the answer; asyncio, with asker and answerer as tasks of one loop.

python examples/request_reply.py ipc:///run/ledgermq
"""

from __future__ import annotations

import asyncio
import sys

from ledgermq.client import asks_for_reply
from ledgermq.client.aio import AsyncConsumer, AsyncProducer, AsyncRequester

TOPIC = "prices"
PRICES = {b"tea": b"3", b"coffee": b"4"}


async def serve(address: str, begin: dict[int, int]) -> None:
    """Answer requests; one that nobody waits for any more is passed over."""
    async with (
        AsyncProducer(address) as producer,
        AsyncConsumer(address, topic=TOPIC, start=begin) as consumer,
    ):
        async for message in consumer:
            if asks_for_reply(message):
                await producer.reply(message, PRICES.get(message.body, b"not sold"))


async def main(address: str) -> None:
    """Ask for three prices, and print them."""
    async with AsyncProducer(address) as producer:
        stored = await producer.send(TOPIC, b"opening")
    server = asyncio.create_task(serve(address, {stored.queue_id: 0}))
    async with AsyncRequester(address) as requester:
        for goods in (b"tea", b"coffee", b"gold"):
            reply = await requester.request(TOPIC, goods, timeout=30.0)
            print(goods.decode(), reply.text())
    server.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
