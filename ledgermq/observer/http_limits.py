"""Limits of the HTTP port: what a client cannot exceed, and who gives way where all is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Times in seconds, sizes in bytes.

    Attributes:
        connections: at once, those included whose TLS handshake is under way.
        connections_per_address: of them from one address, or of one /64 of IPv6; a unix socket has
            none.
        health_places: more connections, which are told of health and nothing else.
        first_byte_s: from a connection's first moment until it says something.
        request_s: from a request's first byte until it is whole.
        idle_s: between two requests.
        answer_s: until an answer is made and read.
        handshake_s: for TLS.
        head_bytes: line and headers of a request.
        body_bytes: its body.
        unsent_bytes: of an answer, copied for its reader; no more is before it has read.
        unread_bytes_of_all: of all answers that are made and not read.
        unread_bytes_per_address: of them those for one address.
        under_way: requests whose answers are being made, but for those of health and of files, half
            of them for one address; more wait for their turn.
        signing_in: the same of requests to sign in, which are no others' places.
        turn_s: who has waited so long for it is told to come again.
    """

    connections: int
    connections_per_address: int
    health_places: int = 16
    first_byte_s: float = 5.0
    request_s: float = 10.0
    idle_s: float = 75.0
    answer_s: float = 30.0
    handshake_s: float = 5.0
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    unsent_bytes: int = 64 * 1024
    unread_bytes_of_all: int = 64 * 1024 * 1024
    unread_bytes_per_address: int = 32 * 1024 * 1024
    under_way: int = 32
    signing_in: int = 8
    turn_s: float = 5.0

    @classmethod
    def of(cls, connections_max: int, memory_bytes_max: int) -> HttpLimits:
        """Those of ``http.connections_max`` and ``http.memory_bytes_max``: half of the connections,
        and an eighth of the memory, may be one address's.
        """
        return cls(
            connections=connections_max,
            connections_per_address=connections_max // 2,
            unread_bytes_of_all=memory_bytes_max // 4,
            unread_bytes_per_address=memory_bytes_max // 8,
        )


PATIENCE_S = 1.0
"""Who is silent for so long, or has begun a request and not ended it, gives way before others."""

Order = Callable[["Placed"], tuple[float, ...]]


class ConnectionPhase(IntEnum):
    """What a connection is at; of those that wait for their client the first give way first."""

    ASKS = 0
    """Its request is not whole, or not begun, or its TLS handshake is not over."""
    RESTS = 1
    """It was answered, and asks for nothing."""
    READS = 2
    """Its answer is made, and not read."""
    WAITS = 3
    """It has asked, and answers to others are made before."""
    WORKS = 4
    """It is being answered: it waits for us."""


class Placed(Protocol):
    """A connection that has a place, or wants one.

    Attributes:
        share: whose share it takes; empty: it is at the unix socket, and takes nobody's.
        since: seconds of the loop's clock since which it is at its ``phase``.
        unread_bytes: of an answer that is made and not read.
        only_health: it has a place of those that are kept for questions of health.
    """

    share: str
    phase: ConnectionPhase
    since: float
    unread_bytes: int
    only_health: bool

    def give_way(self) -> None:
        """End; it has been counted out."""
        ...


class Room:
    """All places, those included whose TLS handshake is under way."""

    def __init__(self, limits: HttpLimits, now_s: Callable[[], float]) -> None:
        """Nobody is there."""
        self._limits = limits
        self._now_s = now_s
        self._kept: set[Placed] = set()
        self._shares: Counter[str] = Counter()

    def take(self, comer: Placed) -> bool:
        """Give ``comer`` a place, if need be somebody else's; whether there was one."""
        limits, share = self._limits, comer.share
        if share and self._shares[share] >= limits.connections_per_address:
            mine = (one for one in self._kept if one.share == share)
            if not self._give_way(mine, _longest):
                return False
        health = [one for one in self._kept if one.only_health]
        if len(self._kept) - len(health) >= limits.connections:
            others = (one for one in self._kept if not one.only_health)
            if not self._give_way(others, self._fairest):
                if len(health) >= limits.health_places and not self._give_way(health, _longest):
                    return False
                comer.only_health = True
        self._kept.add(comer)
        self._shares[share] += 1
        return True

    def leave(self, one: Placed) -> None:
        """It has ended; nothing is done when it had given way before."""
        if one in self._kept:
            self._kept.remove(one)
            self._shares[one.share] -= 1
            if not self._shares[one.share]:
                del self._shares[one.share]

    def bound_unread(self, reader: Placed) -> None:
        """An answer for ``reader`` waits to be read: who has left others unread longest gives way,
        of its share and then of all, until what waits is within bounds.
        """
        mine = [one for one in self._kept if one.share == reader.share]
        if reader.share:
            self._bound(mine, reader, self._limits.unread_bytes_per_address)
        self._bound(list(self._kept), reader, self._limits.unread_bytes_of_all)

    def _bound(self, among: Iterable[Placed], reader: Placed, limit: int) -> None:
        held = sorted((one for one in among if one.unread_bytes), key=_longest)
        total = sum(one.unread_bytes for one in held)
        for one in held:
            if total <= limit:
                return
            if one is not reader:
                total -= one.unread_bytes
                self._end(one)

    def _give_way(self, among: Iterable[Placed], order: Order) -> bool:
        """Have the first one of ``among`` that waits for its client give way; whether one did."""
        waiting = [one for one in among if one.phase is not ConnectionPhase.WORKS]
        if not waiting:
            return False
        self._end(min(waiting, key=order))
        return True

    def _fairest(self, one: Placed) -> tuple[float, ...]:
        """Who asks and does not come to an end, and then who is of those who have most places."""
        if one.phase is ConnectionPhase.ASKS and self._now_s() - one.since >= PATIENCE_S:
            return (0.0, one.since)
        return (1.0, -self._shares[one.share], one.phase, one.since)

    def _end(self, one: Placed) -> None:
        self.leave(one)
        one.give_way()


def _longest(one: Placed) -> tuple[float, ...]:
    return (float(one.phase), one.since)
