"""Traces of reading, as consumers tell of it: a protocol, and what it comes to without any."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from ledgermq.client.core.received import MessageBatch, ReceivedMessage


@dataclass(frozen=True, slots=True)
class Reader:
    """Who consumes.

    Attributes:
        group: empty for who consumes for none.
        client: its name.
    """

    group: str
    client: str


class ReadTraces(Protocol):
    """Is told of what a consumer does; a ``Tracing`` is one."""

    def received(self, batch: MessageBatch, reader: Reader, since_ns: int) -> None:
        """``batch``, which was waited for since a time (epoch ns), is given now."""
        ...

    def processing(self, message: ReceivedMessage, reader: Reader) -> AbstractContextManager[None]:
        """The work on ``message``; an error that leaves it is noted, and goes on."""
        ...

    def settling(
        self, name: str, topic: str, reader: Reader, messages: Sequence[ReceivedMessage] = ()
    ) -> AbstractContextManager[None]:
        """What tells the broker how messages ended.

        Args:
            name: the client's method.
            messages: those that are given back; a commit names none.
        """
        ...


def processing(
    traces: ReadTraces | None, message: ReceivedMessage, reader: Reader
) -> AbstractContextManager[None]:
    """``ReadTraces.processing`` of who may have none."""
    return nullcontext() if traces is None else traces.processing(message, reader)


def settling(
    traces: ReadTraces | None,
    name: str,
    topic: str,
    reader: Reader,
    messages: Sequence[ReceivedMessage] = (),
) -> AbstractContextManager[None]:
    """``ReadTraces.settling`` of who may have none."""
    return nullcontext() if traces is None else traces.settling(name, topic, reader, messages)
