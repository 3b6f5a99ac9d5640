"""A group that messages are sent to: its producer, and how long its acknowledgements take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.clusters.group_turns import GroupTime
from ledgermq.client.clusters.group_watch import WatchedGroup
from ledgermq.client.sending.send_future import SendFuture

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class GroupSend(Protocol[Result_co]):
    """Sends what an application gave, a message or a batch, to one group."""

    def __call__(
        self,
        used: UsedGroup,
        callback: Callable[[SendFuture[Result_co]], object] | None,
        block: bool,
        first_id: str,
        /,
    ) -> SendFuture[Result_co]:
        """The future of where it is stored.

        Args:
            block: wait for room in the group's window.
            first_id: the unique id that an earlier attempt has had, a batch's first one; empty:
                there was none.
        """
        ...


class ClusterSend(NamedTuple, Generic[Result]):
    """What an application sends to any group that has the topic, a message or a batch.

    Attributes:
        size: bytes, nearly.
        stays: whether it does not fail over, though its topic does.
    """

    topic: str
    size: int
    send: GroupSend[Result]
    callback: Callable[[SendFuture[Result]], object] | None
    stays: Callable[[], bool]


class UsedGroup:
    """A group with its producer.

    What fails over has a producer of its own, as it is to have an outcome sooner: ``fails_over``.
    """

    __slots__ = ("_lock", "fails_over", "group", "producer", "time")

    def __init__(self, group: WatchedGroup, producer: Producer, *, fails_over: bool) -> None:
        self.group = group
        self.producer = producer
        self.fails_over = fails_over
        self.time = GroupTime()
        self._lock = threading.Lock()

    def send(
        self,
        send: GroupSend[Result],
        callback: Callable[[SendFuture[Result]], object] | None,
        *,
        block: bool,
        first_id: str = "",
    ) -> SendFuture[Result]:
        """Send, and time it where it is the group's turn to be timed; see ``GroupSend``."""
        with self._lock:
            is_watched = self.time.begins(time.monotonic())
        if not is_watched:
            return send(self, callback, block, first_id)
        try:
            return send(self, partial(self._settle, callback), block, first_id)
        except BaseException:
            self.time.ends(time.monotonic(), is_stored=False)
            raise

    def _settle(
        self, callback: Callable[[SendFuture[Result]], object] | None, done: SendFuture[Result]
    ) -> None:
        """A watched send has its outcome."""
        self.time.ends(time.monotonic(), is_stored=done.exception() is None)
        if callback is not None:
            callback(done)
