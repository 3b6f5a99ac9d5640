"""Message ids: offset ids and unique ids, as upper-case hexadecimal text.

The offset id tells where a message lies (RocketMQ ``MessageDecoder.createMessageId``), big-endian:

    offset  size     field
    0       8 or 20  store host: ip, port (``host_address``)
    8 / 20  8        physical offset

The unique id is the client's, stored as the property ``UNIQ_KEY`` (``MessageClientIDSetter``):

    offset  size     field         unit
    0       4 or 16  ip            of the client
    4 / 16  2        pid           lower 16 bits
    6 / 18  4        salt          tells apart what shares ip and pid; Java's is its class loader's
    10 / 22 4        milliseconds  since the month began, local time
    14 / 26 2        counter
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from struct import Struct
from threading import Lock
from typing import NamedTuple

from ledgermq.formats.records.host_address import (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    Host,
    decode_host,
    encode_host,
)
from ledgermq.model.errors import CorruptLogError, ProtocolError

_OFFSET = Struct(">q")
_COUNTER_BITS = 16

ID_SEPARATOR = ","
"""Separator of the ids of a batch in one answer."""


class OffsetId(NamedTuple):
    """Where a message lies: the broker that stored it, and the position in its log."""

    store_host: Host
    physical_offset: int


def encode_offset_id(offset_id: OffsetId) -> str:
    """The text of ``offset_id``, 32 characters for an IPv4 host and 56 for an IPv6 one."""
    assert offset_id.physical_offset >= 0, offset_id
    return f"{offset_id_prefix(offset_id.store_host)}{offset_id.physical_offset:016X}"


@lru_cache(maxsize=1_024)
def offset_id_prefix(store_host: Host) -> str:
    """What the offset ids of a broker begin with; 16 upper-case hexadecimal digits of a position
    follow.
    """
    return encode_host(store_host).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """The place that ``text`` names.

    Raises:
        ProtocolError: it is no offset id.
    """
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise ProtocolError("offset id is not hexadecimal", id=text[:64]) from error
    host_size = len(data) - _OFFSET.size
    # bytes.fromhex lets spaces pass.
    if host_size not in (HOST_V4_SIZE, HOST_V6_SIZE) or len(text) != 2 * len(data):
        raise ProtocolError("offset id has another size", id=text[:64], size=len(text))
    (physical_offset,) = _OFFSET.unpack_from(data, host_size)
    if physical_offset < 0:
        raise ProtocolError("offset id points before the log", id=text)
    try:
        return OffsetId(decode_host(data[:host_size]), physical_offset)
    except CorruptLogError as error:
        raise ProtocolError(error.message, id=text) from error


_forks = 0


def _note_fork() -> None:
    """In a forked child: to ask the system for the process id with each message costs a call."""
    global _forks  # noqa: PLW0603
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _random_salt() -> int:
    return int.from_bytes(os.urandom(4), "big")


class UniqueIdMaker:
    """Makes ids that no message of the world has; safe to share among threads.

    Milliseconds and counter are one number of 48 bits that only grows: when the clock stands still
    or is set back, or when a millisecond has no number left, it runs ahead of the clock. The salt
    is drawn anew with each month, where the milliseconds begin again, and in each forked child.
    """

    def __init__(
        self,
        address: str,
        *,
        now_ms: Callable[[], int] = _clock_ms,
        salt: Callable[[], int] = _random_salt,
    ) -> None:
        """Ids of this process.

        Args:
            address: the client's own IP address, as text.
            now_ms: epoch milliseconds.
            salt: a random number of 32 bits.

        Raises:
            MessageIllegalError: ``address`` is not an IP address.
        """
        self._address = encode_host((address, 0))[:-4]
        # The clock itself, where it is the machine's: a call less with each message.
        self._now_ms = None if now_ms is _clock_ms else now_ms
        self._salt = salt
        self._lock = Lock()
        self._forks = -1
        self._prefix = ""
        self._month_begin_ms = 0
        self._month_end_ms = 0
        self._next = 0

    def next(self) -> str:
        """One new id."""
        return self.next_many(1)[0]

    def next_many(self, count: int) -> list[str]:
        """``count`` new ids, in ascending order."""
        prefix, first = self.reserve(count)
        return [f"{prefix}{number:012X}" for number in range(first, first + count)]

    def reserve(self, count: int) -> tuple[str, int]:
        """``count`` new ids, to be written out by who needs them.

        Returns:
            what all of them begin with, and the number that the first one ends with, as 12
            upper-case hexadecimal digits; the others follow.
        """
        assert count > 0, count
        with self._lock:
            clock = self._now_ms
            now_ms = time.time_ns() // 1_000_000 if clock is None else clock()
            first = now_ms << _COUNTER_BITS
            if first < self._next:
                first = self._next
                now_ms = first >> _COUNTER_BITS
            if now_ms >= self._month_end_ms or self._forks != _forks:
                self._begin_month(now_ms)
            self._next = first + count
            first -= self._month_begin_ms << _COUNTER_BITS
            return self._prefix, first

    def _begin_month(self, now_ms: int) -> None:
        month = datetime.fromtimestamp(now_ms / 1_000).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        years, months = divmod(month.month, 12)
        following = month.replace(year=month.year + years, month=months + 1)
        self._month_begin_ms = round(month.timestamp() * 1_000)
        self._month_end_ms = round(following.timestamp() * 1_000)
        self._forks = _forks
        process = (os.getpid() & 0xFFFF).to_bytes(2, "big") + self._salt().to_bytes(4, "big")
        self._prefix = (self._address + process).hex().upper()
