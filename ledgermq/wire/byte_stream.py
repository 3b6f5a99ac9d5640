"""Byte stream of a local connection: messages of one or two parts, one behind the other.

Layout of a message, little-endian (docs/formats/client-protocol.md):

    offset  size  field
    0       4     size of part 1
    4       4     size of part 2 and one more; 0: there is none
    8       -     part 1, then part 2
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct

from ledgermq.model.errors import ProtocolError

_HEAD = Struct("<II")
HEAD_SIZE = _HEAD.size
pack_head = _HEAD.pack
"""What stands before the parts, of the two numbers of the layout."""

unpack_head = _HEAD.unpack_from
"""The two numbers again, of bytes and a position in them."""

PARTS_MAX = 2


def message_head(parts: Sequence[bytes]) -> tuple[bytes, int]:
    """What stands before the parts of a message, and the size of all of it."""
    size = len(parts[0])
    if len(parts) == 1:
        return _HEAD.pack(size, 0), HEAD_SIZE + size
    _, second = parts
    more = len(second)
    return _HEAD.pack(size, more + 1), HEAD_SIZE + size + more


class MessageReader:
    """Messages out of the bytes of one connection, as they come.

    Attributes:
        messages: those that are whole, oldest first; the caller's to take.
        begun: what has come of the message that is not whole.
        waits: whether there is more of what has come than was made into messages: ``go_on`` has
            to come before the next ``feed``.
        missing: bytes without which nothing more is whole, as far as can be told; at least 1.
    """

    def __init__(self, part_size_max: int, *, at_once: int | None = None) -> None:
        """Nothing has come.

        Args:
            part_size_max: who announces a larger part is refused before it comes.
            at_once: of many small messages so many are made at a time: as objects they take ten
                times the memory of their bytes. None: all.
        """
        self.messages: deque[list[bytes]] = deque()
        self.missing = HEAD_SIZE
        self._part_max = part_size_max
        self.waits = False
        self._rest = b""
        self._at = 0
        self._at_once = at_once
        # And no list of what came: of few bytes each it would take many times as much memory.
        self.begun = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes; memory is taken for what has come, and not for what is announced.

        Raises:
            ProtocolError: a part is announced that is too large; the stream cannot be read on.
        """
        if self.begun:
            self.begun += data
            self.missing -= len(data)
            if self.missing > 0:
                return
            data = bytes(self.begun)
            self.begun.clear()
        self._make(data, 0)

    def go_on(self) -> None:
        """Make the next messages of what has come.

        Raises:
            ProtocolError: see ``feed``.
        """
        data, self._rest, self.waits = self._rest, b"", False
        self._make(data, self._at)

    def _make(self, data: bytes, at: int) -> None:
        end = len(data)
        messages, unpack_from, limit = self.messages, _HEAD.unpack_from, self._part_max
        while end - at >= HEAD_SIZE:
            first, second = unpack_from(data, at)
            if first > limit or second > limit + 1:
                raise ProtocolError(
                    "part of a message is too large", sizes=(first, second), limit=limit
                )
            begin = at + HEAD_SIZE
            middle = begin + first
            behind = middle + second - 1 if second else middle
            if behind > end:
                break
            if len(messages) == self._at_once:
                self._rest, self._at, self.waits = data, at, True
                return
            if second:
                messages.append([data[begin:middle], data[middle:behind]])
            else:
                messages.append([data[begin:middle]])
            at = behind
        left = end - at
        self.missing = HEAD_SIZE - left if left < HEAD_SIZE else behind - end
        if left:
            self.begun += data[at:] if at else data
