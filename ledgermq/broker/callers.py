"""Callers of the broker's services: our own clients, or the port for one of RocketMQ's.

Which of the two, their types say. What comes over a socket is bytes, whatever a client has chosen
to be called; a ``PortClient`` is made by the port alone.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

OwnClient: TypeAlias = bytes
"""What ZeroMQ calls a connection of our own client by."""


class PortClient:
    """One of the port's: no other is equal to it."""

    __slots__ = ()


Client: TypeAlias = OwnClient | PortClient


class Caller(NamedTuple):
    """Who called, and the number to answer with."""

    client: Client
    request_id: int


NODE_ITSELF = Caller(b"", 0)
"""What the node changes by itself is answered to nobody."""
