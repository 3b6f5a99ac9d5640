"""Unanswered frames of producers, by identity: the measure of their windows."""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.model.errors import BusyError
from ledgermq.sessions.client_rights import Peer


@dataclass(slots=True)
class _Owed:
    peer: Peer
    frames: int = 0
    size: int = 0


class Unanswered:
    """Counts frames and bytes; they outlive the session that they were sent in.

    Attributes:
        total: bytes of all clients.
    """

    def __init__(self) -> None:
        self.total = 0
        self._owed: dict[bytes, _Owed] = {}

    def of(self, identity: bytes, peer: Peer) -> int:
        """Bytes of a client that says HELLO.

        Raises:
            BusyError: answers to another client are due, which had the identity before: they would
                go to this one, and say where the other one's messages are.
        """
        owed = self._owed.get(identity)
        if owed is None:
            return 0
        if owed.peer != peer:
            raise BusyError("answers are due to another client of this identity: say HELLO again")
        return owed.size

    def add(self, identity: bytes, peer: Peer, size: int) -> int:
        """A frame was taken; bytes of its client now."""
        owed = self._owed.get(identity)
        if owed is None:
            owed = self._owed[identity] = _Owed(peer)
        owed.frames += 1
        owed.size += size
        self.total += size
        return owed.size

    def release(self, identity: bytes, size: int) -> int:
        """A frame has its answer; bytes of its client that are left."""
        owed = self._owed[identity]
        owed.frames -= 1
        owed.size -= size
        self.total -= size
        if not owed.frames:
            del self._owed[identity]
        return owed.size
