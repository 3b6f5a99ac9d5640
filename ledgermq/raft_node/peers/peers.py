"""Interface of the raft process to its peers; ``PeerGroup`` is the real one."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower, FeedFrom
from ledgermq.model.ids import NodeId

Arrived = tuple[NodeId, list[memoryview]]
"""Fields of a ``PeerMessage``, which the way of each message does without."""


class PeerMessage(NamedTuple):
    """What a peer has sent; the parts are views of the transport's buffers and keep them alive."""

    node: NodeId
    parts: list[memoryview]


class Peers(Protocol):
    """Messages may be lost, repeated and reordered on the way."""

    @property
    def voters(self) -> Sequence[NodeId]:
        """All members of the settings, this one first."""

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""

    @property
    def refusals(self) -> Mapping[NodeId, str]:
        """Why peers are not let in, and do not let this node in."""

    @property
    def levels(self) -> Mapping[NodeId, int]:
        """The highest feature level that each peer knows which has told so, this node or not."""

    @property
    def direct(self) -> Collection[NodeId]:
        """Peers with whom messages go over a direct connection."""

    @property
    def absent(self) -> Sequence[NodeId]:
        """Peers that have given no sign of life lately, by name."""

    def need_level(self, level: int) -> None:
        """Let in only who knows this feature level, which is in force."""

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """Hand over a message; false when none is taken for that peer now."""

    def may_feed(self, leader: NodeId) -> bool:
        """Whether ``leader`` may have a connection to this node's writer."""

    def await_follower(self, peer: NodeId) -> AwaitFollower | None:
        """What has this node's writer await that of ``peer``; None where nothing is known of it any
        more.
        """

    def feed_from(self, peer: NodeId, port: int) -> FeedFrom | None:
        """What has this node's writer dial ``peer``, which awaits it at ``port``; None where
        nothing is known of it any more.
        """

    def arrived(self) -> deque[Arrived]:
        """Messages of peers that came together, for the caller to take from the left at once.

        What is left there is given again the next time, and wakes the process. Empty: there are
        none, or ``receive`` has to be asked for them.
        """

    def receive(self) -> PeerMessage | None:
        """The next message of a peer, None when none waits."""

    def ended(self) -> Sequence[NodeId]:
        """Peers whose direct connection has ended since the last call, behind all that had come
        over it; mostly nobody.
        """

    def watch(self) -> None:
        """Look after the connections; to be called a few times a second at least."""

    def forget(self, node: NodeId) -> bool:
        """Trust the next disk that ``node`` is seen with; false when none was known."""

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """The group has these members now; ``HOST:PORT`` each."""

    def check_new(self, node: NodeId) -> bool:
        """Go on where this node could talk with ``node``, which is no member yet.

        Returns:
            whether it is known that its version is not too old; it may not have been heard of yet.

        Raises:
            ConfigError: it could not, or it is too old.
        """

    def check_level(self, node: NodeId) -> bool:
        """Go on where ``node`` is not refused just now for being too old for the level in force.

        Returns:
            whether it has just told its level; not where it is let in.

        Raises:
            ConfigError: it is too old.
        """

    def close(self) -> None:
        """Close what was opened."""
