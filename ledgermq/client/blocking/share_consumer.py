"""``ShareConsumer``: takes messages singly, beside any number of others on the same queues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ledgermq.client.broker_connection import TIMEOUT_S, BrokerClient
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.first_contact import nodes_of
from ledgermq.client.groups.share_buffer import (
    WAIT_S_MAX,
    ShareBuffer,
    ShareOptions,
    TakenMessage,
)
from ledgermq.model.errors import ConfigError

ITERATION_WAIT_S = 5.0


class ShareConsumer(BrokerClient):
    """A member of a share group.

        with ShareConsumer(address, group="billing", topic="orders") as consumer:
            for message in consumer:
                handle(message)
                consumer.accept(message)

    Each message goes to one member at a time. One that is not settled within ``invisible_ms`` is
    handed out again, to any of them; so is all that a member has that dies. In a cluster it takes
    the messages of the group of nodes of its address. One thread at a time may use a consumer.
    """

    NAME = "share-consumer"

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        topic: str,
        options: ShareOptions | None = None,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A member, which connects with the first ``poll``.

        Args:
            address: as a ``Consumer`` takes it.
            group: a share group from its first message on: see docs/operating/share-groups.md.
            name: of this client, as the node's operator sees it.
            timeout_s: for each question, beside what it waits for messages.

        Raises:
            ConfigError: the address cannot be one, or the filter.
        """
        self.group = group
        self.topic = topic
        self.options = options or ShareOptions()
        self._buffer = ShareBuffer(group, topic, self.options)
        self._timeout_s = timeout_s
        self._is_closed = False
        super().__init__(nodes_of(address), name=name, timeout_s=timeout_s)

    @property
    def in_flight(self) -> int:
        """Messages that were taken and of which nobody has said what is to become of them."""
        return self._buffer.in_flight

    def poll(self, timeout: float | None = 1.0) -> list[TakenMessage]:
        """The next messages; none when there are none within ``timeout`` seconds, or as many are in
        flight as may be.

        What was accepted, released or rejected before is told to the broker first, or by the same
        question: it is in the log when this returns.

        Args:
            timeout: without end when ``None``.

        Raises:
            LedgerError: the broker refused, or did not answer.
        """
        check_timeout(timeout)
        self._take(timeout)
        return self._buffer.give()

    def __iter__(self) -> Iterator[TakenMessage]:
        """All messages, also those to come, until the consumer is closed. Each is to be settled.

        Raises:
            ConfigError: as many are in flight as may be, and none of them was settled.
        """
        self._check_process()
        while not self._is_closed:
            self._buffer.refresh()
            if not self._buffer.is_ready:
                if not self._buffer.has_room:
                    raise ConfigError(
                        "as many messages are in flight as may be: settle some",
                        in_flight=self.in_flight,
                        option="max_in_flight",
                    )
                self._take(ITERATION_WAIT_S)
            elif self._buffer.is_due:
                self._take(0)
            yield from self._buffer.give(1)

    def accept(self, *messages: TakenMessage) -> None:
        """They are done with: nobody is handed them again.

        The broker is told with the next ``poll`` or ``flush``, or by ``close``; an iteration does
        so with each 32 messages, and before it waits for more.

        Raises:
            ConfigError: one is not in flight here.
        """
        self._buffer.say("accept", messages)

    def release(self, *messages: TakenMessage, delay_ms: int = 0) -> None:
        """They could not be processed now, and are handed out again, after ``delay_ms``.

        Raises:
            ConfigError: one is not in flight here, or the delay is none.
        """
        self._buffer.say("release", messages, delay_ms)

    def reject(self, *messages: TakenMessage) -> None:
        """They can never be processed, and become dead letters of the group.

        Raises:
            ConfigError: one is not in flight here.
        """
        self._buffer.say("reject", messages)

    def extend(self, *messages: TakenMessage, invisible_ms: int | None = None) -> bool:
        """Keep them for ``invisible_ms`` from now on, at once; that of the options if left out.

        Returns:
            whether of none it was too late; others may have it.

        Raises:
            ConfigError: one is not in flight here.
            LedgerError: the broker refused, or did not answer.
        """
        more = self.options.invisible_ms if invisible_ms is None else invisible_ms
        return self.run(self._buffer.extend(messages, more))

    def flush(self) -> list[TakenMessage]:
        """Tell the broker what was said of messages; it is in the log when this returns.

        Returns:
            those of which it was too late: others have them, or get them again.

        Raises:
            LedgerError: the broker refused, or did not answer; it is told again with the next call.
        """
        return self._settle()

    def close(self) -> None:
        """Tell what was said, give back what was not settled, and close.

        Messages that nobody was given count as never handed out.

        Raises:
            LedgerError: the broker did not take it; others get the messages when their time has
                passed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.run(self._buffer.give_back())
        finally:
            super().close()

    def _settle(self) -> list[TakenMessage]:
        return self.run(self._buffer.settle())

    def _take(self, seconds: float | None) -> None:
        """Tell what was said, and take messages as far as there is room."""
        if not self._buffer.goes_along:
            self._settle()
        self._receive(seconds)

    def _receive(self, seconds: float | None) -> None:
        until = NEVER if seconds is None else time.monotonic() + seconds
        while True:
            wait_s = min(max(0.0, until - time.monotonic()), WAIT_S_MAX)
            if self._wait(self._buffer.receive(int(wait_s * 1_000)), wait_s):
                return
            if time.monotonic() >= until or self._buffer.in_flight:
                return

    def _wait(self, steps: Steps[Result], seconds: float) -> Result:
        return self._broker.run(steps, timeout_s=self._timeout_s + seconds)
