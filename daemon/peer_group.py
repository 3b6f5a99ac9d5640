"""The other nodes of the group, as the raft process sees them: who votes, and the way to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from ledgermq.daemon.loop import Pollable
from ledgermq.ipc.doorbell import Context
from ledgermq.model.ids import NodeId
from ledgermq.model.settings import Settings


class PeerMessage(NamedTuple):
    """What a peer has sent; the parts are views of ZeroMQ's buffers and keep them alive."""

    node: NodeId
    parts: list[memoryview]


class PeerGroup:
    """A group of one has no sockets."""

    def __init__(self, voters: Sequence[NodeId]) -> None:
        self.voters = tuple(voters)

    @classmethod
    def of(cls, settings: Settings, context: Context) -> Self:
        """The group that the settings name."""
        return cls([NodeId(settings.node.self_id)])

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""
        return []

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """Hand a message to ZeroMQ; false when it takes none for that peer now."""
        return False

    def receive(self) -> PeerMessage | None:
        """The next message of a peer, None when none waits."""
        return None

    def close(self) -> None:
        """Close the sockets."""
