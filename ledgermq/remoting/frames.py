"""Frame splitter: a connection's bytes into frames; nothing is kept between two frames."""

from __future__ import annotations

from collections.abc import Iterator

from ledgermq.formats.first_bytes import REMOTING_FRAME_MAX, Spoken, recognise
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.command import LENGTHS_SIZE

"""RocketMQ's default of ``com.rocketmq.remoting.frameMaxLength``, the size field not counted."""

_SIZE_SIZE = 4

_OTHERS = {
    Spoken.GRPC: "a gRPC client of RocketMQ 5 (rocketmq-clients): it has an address of its own"
    " (listen.grpc)",
    Spoken.HTTP: "an HTTP request: the console and the metrics have an address of their own"
    " (listen.http)",
    Spoken.TLS: "TLS, which this port does not speak (remoting.tls_mode)",
    Spoken.ZEROMQ: "a client of LedgerMQ's own, or another one of ZeroMQ: it connects to the"
    " addresses of listen.produce and listen.consume",
}
"""Who else connects; their first bytes, as sizes, are above any limit."""


class FrameSplitter:
    """Gathers the bytes of one connection until a frame is whole.

    Attributes:
        waiting: bytes of a frame that is not whole; 0 between frames.
    """

    __slots__ = ("_limit", "_need", "_parts", "waiting")

    def __init__(self, limit: int = REMOTING_FRAME_MAX) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self.waiting = 0
        self._need = _SIZE_SIZE

    def whole(self, data: bytes) -> memoryview | None:
        """The frame that ``data`` is, from its size field to its end, as it mostly comes; None,
        and nothing is taken, where it is anything else.
        """
        size = len(data) - _SIZE_SIZE
        if self.waiting or not LENGTHS_SIZE - _SIZE_SIZE <= size <= self._limit:
            return None
        view = memoryview(data)
        return view[_SIZE_SIZE:] if int.from_bytes(view[:_SIZE_SIZE], "big") == size else None

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Whole frames, each a view behind its size field; the views keep their bytes alive.

        To be gone through to its end, or to its error.

        Raises:
            ProtocolError: a frame is larger than the limit or too small; the rest is lost.
        """
        self.waiting += len(data)
        if self.waiting < self._need:
            # Joined once: a large frame comes in many pieces.
            self._parts.append(data)
            return
        if self._parts:
            data = b"".join((*self._parts, data))
            self._parts = []
        view = memoryview(data)
        at = 0
        self._need = _SIZE_SIZE
        while self.waiting - at >= _SIZE_SIZE:
            size = int.from_bytes(view[at : at + _SIZE_SIZE], "big")
            if not LENGTHS_SIZE - _SIZE_SIZE <= size <= self._limit:
                raise self._no_frame(bytes(view[at : at + _SIZE_SIZE]))
            end = at + _SIZE_SIZE + size
            if end > self.waiting:
                self._need = end - at
                break
            yield view[at + _SIZE_SIZE : end]
            at = end
        self.waiting -= at
        if self.waiting:
            self._parts = [data[at:]]

    def _no_frame(self, field: bytes) -> ProtocolError:
        """What to say of what is no size: of other protocols, in words."""
        who = _OTHERS.get(recognise(field))
        if who is not None:
            return ProtocolError(f"not RocketMQ's remoting protocol, but {who}")
        return ProtocolError(
            "frame of a size that is not allowed",
            size=int.from_bytes(field, "big"),
            minimum=LENGTHS_SIZE - _SIZE_SIZE,
            limit=self._limit,
        )
