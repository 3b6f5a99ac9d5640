"""Batch load: a producer in a thread that goes on whoever leads, and notes what is acknowledged."""

from __future__ import annotations

from typing import Any

from ledgermq.client import Producer, ProducerOptions
from tests.process.conftest import wait_until
from tests.process.group_nodes import TOPIC
from tests.process.in_background import InBackground

BATCH = 20


class BatchLoad(InBackground):
    """Sends batches of numbered messages from its begin to its end.

    Attributes:
        acknowledged: bodies, in their order.
    """

    def __init__(
        self, *addresses: str, topic: str = TOPIC, padding: bytes = b"", pause_s: float = 0.0,
        **options: Any,
    ) -> None:  # fmt: skip
        """``padding`` stands behind the number in each body; ``options`` are the producer's."""
        super().__init__()
        self.acknowledged: list[bytes] = []
        self._addresses = list(addresses)
        self._topic = topic
        self._padding = padding
        self._pause_s = pause_s
        self._options = ProducerOptions(**options)

    def wait_more(self, count: int = 100) -> None:
        """Until so many messages more are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{count} acknowledgements")

    def run(self) -> None:
        """See ``InBackground``."""
        where = self._addresses if len(self._addresses) > 1 else self._addresses[0]
        number = 0
        with Producer(where, options=self._options) as producer:
            while not self.is_ended.wait(self._pause_s):
                bodies = [b"%08d" % one + self._padding for one in range(number, number + BATCH)]
                producer.send_batch(self._topic, bodies).result()
                self.acknowledged += bodies
                number += BATCH
