"""Presence of the other members: who has given a sign of life lately, and who was refused."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from ledgermq.model.ids import NodeId

SHOWN_S = 10.0
"""A refusal is over when it was not repeated for so long: members talk far more often."""

PEERS_MAX = 64
"""Whoever is not let in chooses its name freely: a flood of names is counted, and not kept."""

REASONS_MAX = 16

ABSENT_S = 3.5
"""Members greet one another every second; who has not done so for this long is absent.

RocketMQ's name servers forget a broker whose connection ends, and look every few seconds.
"""


@dataclass(slots=True)
class _Refusal:
    reason: str
    at: float
    told: set[str] = field(default_factory=set)


class Refusals:
    """The latest refusal of each peer: logged once, shown while it lasts; bounded in number."""

    def __init__(self) -> None:
        self.count = 0
        self._refusals: dict[NodeId, _Refusal] = {}

    def note(self, peer: NodeId, reason: str, now: float) -> bool:
        """Keep it; true when it is to be logged: once for each peer and reason."""
        self.count += 1
        refusal = self._refusals.get(peer)
        if refusal is None:
            if len(self._refusals) >= PEERS_MAX and not self._drop_oldest(now):
                return False
            refusal = self._refusals[peer] = _Refusal(reason, now)
        refusal.reason, refusal.at = reason, now
        if reason in refusal.told or len(refusal.told) >= REASONS_MAX:
            return False
        refusal.told.add(reason)
        return True

    def lift(self, peer: NodeId) -> bool:
        """The peer is let in now; true when it was not before. A new refusal is logged again."""
        return self._refusals.pop(peer, None) is not None

    @property
    def peers(self) -> Set[NodeId]:
        """Whose refusals are kept: ``PEERS_MAX`` at most."""
        return self._refusals.keys()

    def current(self, now: float) -> dict[NodeId, str]:
        """The refusals that last."""
        return {
            peer: refusal.reason
            for peer, refusal in self._refusals.items()
            if now - refusal.at < SHOWN_S
        }

    def _drop_oldest(self, now: float) -> bool:
        oldest = min(self._refusals, key=lambda peer: self._refusals[peer].at)
        if now - self._refusals[oldest].at < SHOWN_S:
            return False
        del self._refusals[oldest]
        return True


class PeerPresence:
    """Signs of life of the peers, for routes; a new one is present until it has had its time."""

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
