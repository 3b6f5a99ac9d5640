"""Where a node is attacked."""

from __future__ import annotations

from typing import NamedTuple

Address = tuple[str, int]


class Target(NamedTuple):
    """Where a node is attacked; ``scale`` 1 is for a moment, more for as much longer.

    ``stream``: path of the writer's stream socket. ``token``: of one who may look at messages over
    HTTP, and change nothing else. ``grpc``: without its library there is no such port.
    """

    consume: Address
    produce: Address
    remoting: Address
    http: Address
    stream: str
    token: str
    scale: int = 1
    grpc: Address | None = None

    @property
    def port(self) -> str:
        """Of RocketMQ's clients."""
        return f"{self.remoting[0]}:{self.remoting[1]}"
