"""Bucket: objects of an object store below a prefix, put on condition, by any store's client.

Which store a place is of is the matter of ``bucket_opening``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from io import RawIOBase
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.model.errors import CorruptLogError

TRIES = 12
"""Tries of one request, with drawn pauses between them that grow to 20 s: a minute, or one and a
half."""

REASON_MAX = 300
"""Characters of what a client or a store says, in an error."""

ANSWER_TRIES = 5
"""Tries of a request whose answer is cut off, or has other bytes than its checksum is of."""

REQUESTS_AT_ONCE = 16
"""Most requests of one process at once: many small objects take their time on the way there and
back."""

LIST_MAX = 1_000
"""Keys in one request, as stores have it."""

OBJECT_BYTES_MAX = 1 << 30
"""Most bytes of an object that is read into memory: a document of the manifest has some 300 bytes a
file."""

RANGE_BYTES = 8 << 20
"""Bytes that are asked for at once, and stand in memory, of an object that is read in ranges."""

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60

NOT_MET = {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT}
"""What a put is answered whose condition is not met, or was not while another put was done."""

NO_CONDITIONS = "object store does not keep to conditions of a put, which writing there needs"


class StoredObject(NamedTuple):
    """An object's bytes.

    Attributes:
        version: what a condition asks for: an ETag, or a generation.
        age_s: since it was written, by the clock of the store; not less than 0.
    """

    content: bytes
    version: str
    age_s: float


class StretchBody(Protocol):
    """What the bytes of a stretch are read from, once."""

    def read(self, size: int) -> bytes:
        """What comes next, at most so much; empty at the end.

        Raises:
            ConnectionError: it was cut off, and may be asked for again.
        """
        ...

    def close(self) -> None:
        """What did not come yet is not wanted."""
        ...


class Stretch(NamedTuple):
    """Bytes of an object that are on their way.

    Attributes:
        body: what they are read from; None where the object has none so far behind.
        size: bytes of the whole object.
        version: what a condition asks for.
    """

    body: StretchBody | None
    size: int
    version: str

    def read(self, size: int) -> bytes:
        """What comes next, at most so much; empty at the end.

        Raises:
            ConnectionError: it was cut off, and may be asked for again.
        """
        return b"" if self.body is None else self.body.read(size)

    def close(self) -> None:
        """What did not come yet is not wanted."""
        if self.body is not None:
            self.body.close()


class RangedBody:
    """Bytes of an object from ``start`` to ``end``, as ``StretchBody``, range by range."""

    def __init__(
        self, ranged: Callable[[int, int], bytes], start: int, end: int, step: int
    ) -> None:
        """``ranged`` has all bytes from one place to another one; ``step`` are asked of it."""
        self._ranged = ranged
        self._at = start
        self._end = end
        self._step = step
        self._kept = memoryview(b"")

    def read(self, size: int) -> bytes:
        if not self._kept and self._at < self._end:
            stop = min(self._end, self._at + self._step)
            self._kept = memoryview(self._ranged(self._at, stop))
            self._at = stop
        chunk, self._kept = self._kept[:size], self._kept[size:]
        return bytes(chunk)

    def close(self) -> None:
        self._kept = memoryview(b"")
        self._at = self._end


class Bucket(ABC):
    """The objects below the prefix of a place; keys are below it.

    All that asks raises ``StorageError`` when the store refuses or does not answer,
    ``ConfigError`` when it does not know keys or bucket, and ``FileNotFoundError`` where an object
    is needed that is not there. Busy answers, lost connections and answers that do not come are
    tried again before.

    Attributes:
        place: with endpoint and region as this host has them, for processes on others.
        no_version: one that no object has.
    """

    place: BucketPlace
    no_version: str

    @abstractmethod
    def get(self, key: str, *, bytes_max: int) -> StoredObject | None:
        """The object; None without one.

        Raises:
            CorruptLogError: it is larger than that: no object of ours.
        """

    @abstractmethod
    def put(self, key: str, content: bytes, *, over: str | None) -> str | None:
        """Write the object if it is still of version ``over`` (None: if there is none).

        Where this raises it may be written or not.

        Returns:
            Its version now; None when the condition was not met, and nothing was written.
        """

    @abstractmethod
    def put_new(self, key: str, content: IO[bytes] | RawIOBase, crc: int) -> bool:
        """Write the object with all bytes of ``content``, 5 GiB at most, if there is none.

        Where this raises it may be written or not.

        Args:
            crc: CRC-32 of the content; what comes to the store is compared with it, or with
                another sum that the client makes of the bytes that it sends.

        Returns:
            False if there is one, which may be this one: an answer was lost, and asked for anew.
        """

    @abstractmethod
    def stretch(self, key: str, start: int, end: int | None, *, version: str | None) -> Stretch:
        """Have bytes from ``start`` to ``end`` (None: all behind it) sent.

        Args:
            version: what the object must be of; None: of any.
        """

    @abstractmethod
    def upload(self, key: str, file: Path) -> None:
        """Write the object with all bytes of ``file``; large ones go in parts."""

    @abstractmethod
    def fetch(self, key: str, file: Path) -> None:
        """Make ``file`` of the object's bytes."""

    @abstractmethod
    def copy(self, source: str, target: str) -> bool:
        """Let the store copy an object of up to 5 GiB, whole or not at all; false without one."""

    @abstractmethod
    def listed(self, prefix: str = "", *, at_most: int = LIST_MAX) -> Iterator[str]:
        """Keys with that beginning, in their order; so many are asked for at once."""

    @abstractmethod
    def level(self, folder: str) -> Iterator[str]:
        """What stands right below ``folder`` (empty, or with ``/`` at its end), without it:
        objects, and folders with ``/`` at their ends.
        """

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; they need not be there."""

    @abstractmethod
    def unended(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Uploads of parts below ``prefix`` that nobody has ended: their keys and ids.

        None of a store that does not list them, or that lets them go by itself.
        """

    @abstractmethod
    def give_up(self, key: str, upload: str) -> None:
        """Delete the parts of an upload: they cost money."""

    def get_all(self, keys: Iterable[str]) -> Iterator[StoredObject | None]:
        """Objects in the order of their keys, several asked for at once."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="bucket") as pool:
            yield from pool.map(partial(self.get, bytes_max=OBJECT_BYTES_MAX), keys)

    def copy_all(self, pairs: Iterable[tuple[str, str]]) -> int:
        """Copy several at once; how many there were."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="bucket") as pool:
            return sum(pool.map(lambda pair: self.copy(*pair), pairs))

    def as_text(self, key: str = "") -> str:
        """A key as people write it."""
        return self.place.as_text(key)

    def check_bound(self, key: str, size: int, bytes_max: int) -> None:
        """Refuse an object that is about to be read into memory and has more than ``bytes_max``.

        Raises:
            CorruptLogError: it is larger than that: no object of ours.
        """
        if size > bytes_max:
            raise CorruptLogError(
                "object is too large for what it is to be",
                file=self.as_text(key),
                bytes=size,
                allowed=bytes_max,
            )


def whole(content: bytes, size: int) -> bytes:
    """The content, if it is all that was asked for.

    Raises:
        ValueError: it is not; it may be asked for again.
    """
    check_size(len(content), size)
    return content


def check_size(found: int, size: int) -> None:
    """Bytes that came, of those that were asked for; the error is that of ``whole``."""
    if found != size:
        raise ValueError(f"{found} bytes came, and not {size}")
