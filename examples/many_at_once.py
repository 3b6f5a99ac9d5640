"""Work on many messages at the same time, and commit what is done; asyncio.

    python examples/many_at_once.py ipc:///run/ledgermq

Each order is a call to somebody slow. A batch is worked on by as many tasks as it has messages, of
which so many may call at once; it is committed when all of them are done. Those that failed are
given back, and come again later.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from ledgermq.client import ReceivedMessage
from ledgermq.client.aio import AsyncGroupConsumer, AsyncProducer

TOPIC = "parcels"
PARCELS = 40
CALLS_MAX = 10


class Courier:
    """Somebody slow, who refuses the seventh parcel once."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.most = 0
        self._calls = 0
        self._free = asyncio.Semaphore(CALLS_MAX)
        self._refused = {7}

    async def take(self, parcel: int) -> None:
        """Take a parcel, or refuse it."""
        async with self._free:
            self._calls += 1
            self.most = max(self.most, self._calls)
            await asyncio.sleep(0.01)
            self._calls -= 1
            if parcel in self._refused:
                self._refused.remove(parcel)
                raise ConnectionError(f"parcel {parcel} is refused")
        self.taken.append(parcel)


async def refused_of(courier: Courier, batch: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
    """Hand over the parcels of a batch, all at once; those that were refused."""
    outcomes = await asyncio.gather(
        *(courier.take(message.json()) for message in batch), return_exceptions=True
    )
    refused = []
    for message, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, ConnectionError):
            print(outcome)
            refused.append(message)
        elif outcome is not None:
            raise outcome
    return refused


async def main(address: str) -> None:
    """Send parcels, and hand all of them over."""
    async with AsyncProducer(address) as producer:
        await producer.send_batch(TOPIC, [b"%d" % number for number in range(PARCELS)])
    courier = Courier()
    consumer = AsyncGroupConsumer(address, group="couriers")
    consumer.subscribe(TOPIC)
    async with consumer:
        while len(courier.taken) < PARCELS:
            refused = await refused_of(courier, await consumer.poll())
            if refused:
                # They come again in a second.
                await consumer.retry_later(*refused, delay_level=1)
            await consumer.commit()
    print(f"{len(set(courier.taken))} parcels, at most {courier.most} calls at once")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
