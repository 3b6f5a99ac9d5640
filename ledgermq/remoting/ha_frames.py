"""HA protocol of RocketMQ's plain masters, as bytes: what a slave reports, what a master pushes.

Big-endian, over one TCP connection (``DefaultHAConnection``, ``DefaultHAClient``); in RocketMQ 4.9
and 5 alike, but for a 5 with a controller (``understudy/elected_frames.py``):

    slave to master        master to slave
    size  field            size  field
    8     position         8     position of the body's first byte
                           4     size of the body; 0: a sign of life
                           n     body: bytes of the CommitLog, cut anywhere

The slave's first report asks for what follows that position, and each one says that the slave has
all before it. A master that is asked for position 0 begins with its newest file instead.
"""

from __future__ import annotations

from struct import Struct

from ledgermq.model.errors import ProtocolError

HEADER = Struct(">qi")
REPORT = Struct(">q")

REPORTS_SIZE_MAX = 4 * 1024
"""Bytes of reports that are taken at once; a slave sends eight for each piece that it has."""

PUSHED_SIZE_MAX = 4 * 1024 * 1024
"""RocketMQ's own slaves read into a buffer of this size; masters send 32 KiB at a time."""


class FrameReader:
    """Takes the bytes of one connection, and gives those of the log, in their order.

    Attributes:
        position: of the next byte of the log.
    """

    HEADER = HEADER

    def __init__(self, position: int) -> None:
        """Nothing has come yet.

        Args:
            position: what was asked for.
        """
        self.position = position
        self._head = bytearray()
        self._left = 0

    def feed(self, data: bytes) -> list[memoryview]:
        """Bytes of the log in ``data``, as views of it.

        Raises:
            ProtocolError: no frame of a master, or one that does not follow the one before; the
                connection cannot be trusted any more, and nothing of ``data`` is given.
        """
        found: list[memoryview] = []
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                part = view[at : at + self._left]
                found.append(part)
                self._left -= len(part)
                self.position += len(part)
                at += len(part)
                continue
            wanted = self.HEADER.size - len(self._head)
            self._head += view[at : at + wanted]
            at += wanted
            if len(self._head) == self.HEADER.size:
                self._left = self._begin(bytes(self._head))
                self._head.clear()
        return found

    def _begin(self, head: bytes) -> int:
        """Size of the body behind the header that has come."""
        position, size = HEADER.unpack(head)
        return self._checked(position, size)

    def _checked(self, position: int, size: int) -> int:
        """The size of a body, which may begin at ``position``."""
        if position != self.position:
            raise ProtocolError(
                "the master does not go on where its log was read to",
                position=position,
                expected=self.position,
            )
        if not 0 <= size <= PUSHED_SIZE_MAX:
            raise ProtocolError(
                "the master sends a frame of a size that is not allowed",
                position=position,
                size=size,
                limit=PUSHED_SIZE_MAX,
            )
        return size


class ReportReader:
    """Takes the bytes of a slave, and gives what it says to have.

    Attributes:
        reported: what it said last; -1 before its first report.
    """

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.reported = -1
        self._left = bytearray()

    def feed(self, data: bytes, *, sent: int) -> bool:
        """Take what has come; whether a whole report was in it.

        Args:
            sent: position behind all that it was sent, or asked for with its first report.

        Raises:
            ProtocolError: it says to have less than before, or more than it was sent.
        """
        self._left += data
        whole = len(self._left) // REPORT.size * REPORT.size
        for (position,) in REPORT.iter_unpack(self._left[:whole]):
            if not max(self.reported, 0) <= position <= sent:
                raise ProtocolError(
                    "the slave reports a position that it cannot have",
                    position=position,
                    before=self.reported,
                    sent=sent,
                )
            self.reported = position
        del self._left[:whole]
        return whole > 0


def encode_pushed(position: int, body: bytes) -> bytes:
    """The frame of a master with ``body``, which begins at ``position`` of the log; an empty one is
    a sign of life.
    """
    assert len(body) <= PUSHED_SIZE_MAX, len(body)
    return HEADER.pack(position, len(body)) + body
