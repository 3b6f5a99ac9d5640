"""Limits of the HTTP port: times, sizes and numbers that a client cannot exceed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Times in seconds, sizes in bytes.

    Attributes:
        connections: at once, those included whose TLS handshake is under way.
        connections_per_address: of them from one address; a unix socket has none.
        request_s: from a connection's first moment, or its next request's first byte, until the
            request is whole.
        idle_s: between two requests.
        answer_s: until an answer is made and read.
        handshake_s: for TLS.
        head_bytes: line and headers of a request.
        body_bytes: its body.
        unsent_bytes: of an answer that waits for its reader; more is not made before.
        under_way: requests that are being answered, but for those of health; more are told to come
            again.
    """

    connections: int
    connections_per_address: int
    request_s: float = 10.0
    idle_s: float = 75.0
    answer_s: float = 30.0
    handshake_s: float = 5.0
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    unsent_bytes: int = 64 * 1024
    under_way: int = 32

    @classmethod
    def of(cls, connections_max: int) -> HttpLimits:
        """Those of ``http.connections_max``: half of it may come from one address."""
        return cls(connections=connections_max, connections_per_address=connections_max // 2)
