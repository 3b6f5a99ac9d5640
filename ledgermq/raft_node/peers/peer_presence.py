"""Presence of the other members: who has given a sign of life lately, as routes tell it."""

from __future__ import annotations

from collections.abc import Iterable

from ledgermq.model.ids import NodeId

ABSENT_S = 3.5
"""Members greet one another every second; who has not done so for this long is absent.

RocketMQ's name servers forget a broker whose connection ends, and look every few seconds.
"""


class PeerPresence:
    """Signs of life of the peers. A new one counts as present until it has had its time."""

    def __init__(self) -> None:
        self._heard: dict[NodeId, float] = {}

    def set_peers(self, peers: Iterable[NodeId], now: float) -> None:
        """Look at these and no others; ``now`` in seconds, of a clock that only goes on."""
        self._heard = {peer: self._heard.get(peer, now) for peer in peers}

    def greeted(self, peer: NodeId, now: float) -> None:
        """It has given a sign of life."""
        if peer in self._heard:
            self._heard[peer] = now

    def lost(self, peer: NodeId) -> None:
        """The connection to it has ended: absent until it gives a sign of life again."""
        if peer in self._heard:
            self._heard[peer] = float("-inf")

    def absent(self, now: float) -> tuple[NodeId, ...]:
        """Who has given none for too long, by name."""
        return tuple(sorted(peer for peer, at in self._heard.items() if now - at > ABSENT_S))
