"""Limits of the HTTP port: times, sizes and numbers that a client cannot exceed."""

from __future__ import annotations

from dataclasses import dataclass


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
