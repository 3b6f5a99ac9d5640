"""A writer's compiled wait in the simulator: what it takes where the process would wait.

It is the kernel of real writers (``formats/kernels/_wait.pyx``) with the network's ends in the
place of connections. What producers send is taken in turns: their connections are simulated.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, cast

from ledgermq.ipc.loop import Pollable
from ledgermq.model.ids import NodeId
from ledgermq.process.environment import Environment
from ledgermq.writer.steady_wait import Descriptors, SteadyTurns
from ledgermq.writer.writer import WriterWorker
from tests.simulator.machine.network import (
    FEED_SOURCE,
    FOLLOWERS_SOURCE,
    FeedEnd,
    FollowersEnd,
    WriterEnd,
)


class EndOfPeer:
    """What an end has of one peer, as a connection."""

    failure = ""

    def __init__(self, end: WriterEnd, peer: NodeId) -> None:
        self.peer = peer
        self._end = end

    def receive(self) -> list[list[memoryview]]:
        return self._end.take_of(self.peer)

    def send(self, first: bytes, second: bytes | None = None) -> bool:
        assert second is None, "the wait answers, and sends no entries here"
        assert isinstance(self._end, FeedEnd)
        self._end.send(self.peer, first)
        return True


class SteadyFeed:
    """What the wait needs of connections; ``descriptor`` is never looked at."""

    descriptor = -1

    def __init__(self, end: WriterEnd) -> None:
        self.open: dict[NodeId, EndOfPeer] = {}
        self.by_descriptor: dict[int, EndOfPeer] = {}
        self._end = end

    @property
    def has_found(self) -> bool:
        return False

    def connection_to(self, peer: NodeId) -> EndOfPeer:
        return EndOfPeer(self._end, peer)

    def put_back(self, peer: NodeId, messages: list[list[memoryview]]) -> None:
        self._end.put_back(peer, messages)

    def note_end(self, peer: NodeId) -> None:
        raise AssertionError(peer)


class SimSteady:
    """The wait of one life of a writer.

    Attributes:
        taken, left: steps after which no turn was needed, and the others, of all writers.
    """

    taken: ClassVar[int] = 0
    left: ClassVar[int] = 0

    def __init__(
        self,
        environment: Environment,
        worker: WriterWorker,
        feed: FeedEnd,
        followers: FollowersEnd,
    ) -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        fence = os.open(environment.paths.run_fence, os.O_RDWR | os.O_CREAT, 0o600)
        self._followers = followers
        self._turns = SteadyTurns(
            environment,
            worker,
            cast("Any", SteadyFeed(feed)),
            cast("Any", SteadyFeed(followers)),
            Descriptors(fence, -1, nowhere),
        )

    def step(self, ready: dict[Pollable, int], now_ns: int) -> bool:
        """Whether all that ``ready`` tells of was done where the process would wait."""
        if not ready or ready.keys() - {FEED_SOURCE, FOLLOWERS_SOURCE}:
            return False
        heard = [EndOfPeer(self._followers, peer) for peer in self._followers.peers]
        is_done = self._turns.step(now_ns, FEED_SOURCE in ready, cast("list[object]", heard))
        SimSteady.taken += is_done
        SimSteady.left += not is_done
        return is_done

    def close(self) -> None:
        """Let go of the page."""
        self._turns.close()
