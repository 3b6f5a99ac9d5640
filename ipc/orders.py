"""Orders between the processes of a node, and the answers to them: small fixed frames.

Layout, little-endian: kind u8, 7 bytes reserved, then five signed 64-bit numbers.

    kind             from → to          term    number            position        extra
    READY            writer → raft      –       last index        end of the log  last term
    GRANT            raft → writer      term    –                 –               –
    GRANTED          writer → raft      term    last index        end of the log  last term
    FOLLOW           raft → writer      term    last to keep      –               –
    FOLLOWED         writer → raft      term    last index        end of the log  last term
    TOPICS_CHANGED   broker → writer    –       version           –               –
    TOPICS_LOADED    writer → broker    –       version           –               –

The fifth number is raft's *sequence*: an answer carries that of its order, and the writer carries
out only an order with a higher one than any before. GRANT and FOLLOW begin a fresh append ring.

An order is repeated by its sender until it is answered; a receiver that sees it twice answers
twice.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError

_FRAME = Struct("<B7xqqqqq")


class OrderKind(IntEnum):
    """What an order says; numbers are never reused."""

    READY = 1
    GRANT = 2
    GRANTED = 3
    FOLLOW = 7
    FOLLOWED = 8
    TOPICS_CHANGED = 10
    TOPICS_LOADED = 11


class Order(NamedTuple):
    """One order or answer; the module's table tells what the numbers mean for each kind."""

    kind: OrderKind
    term: int = 0
    number: int = 0
    position: int = 0
    extra: int = 0
    sequence: int = 0

    @property
    def version(self) -> int:
        """``number`` under the name that the topic orders give it."""
        return self.number

    def encode(self) -> bytes:
        """The frame to send."""
        return _FRAME.pack(*self)


def parse(message: bytes) -> Order:
    """The order in ``message``.

    Raises:
        ProtocolError: it is none of this version's.
    """
    if len(message) != _FRAME.size:
        raise ProtocolError("order of a wrong size", size=len(message), expected=_FRAME.size)
    kind, *numbers = _FRAME.unpack(message)
    if kind not in OrderKind.__members__.values():
        raise ProtocolError("unknown order", kind=kind)
    return Order(OrderKind(kind), *numbers)


def topics_changed(version: int) -> bytes:
    """Broker to writer: ``config/topics.json`` has a new content."""
    return Order(OrderKind.TOPICS_CHANGED, number=version).encode()


def topics_loaded(version: int) -> bytes:
    """Writer to broker: sends to what the file named at ``version`` are accepted."""
    return Order(OrderKind.TOPICS_LOADED, number=version).encode()
