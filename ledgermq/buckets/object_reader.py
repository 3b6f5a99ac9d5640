"""Object reader: a bucket's object as a file that is read once, from its begin to its end.

First comes a short stretch, which is all that a look at a beginning takes, and then the rest. What
is cut off on its way is asked for from there on, of the same version.
"""

from __future__ import annotations

from io import BufferedReader, RawIOBase
from typing import cast

from ledgermq.buckets.bucket import TRIES, Bucket
from ledgermq.model.errors import StorageError

FIRST_BYTES = 64 << 10
"""Bytes of the first stretch: a small object is one request."""

BUFFER_BYTES = 1 << 20


def open_object(bucket: Bucket, key: str) -> BufferedReader:
    """The object ``key``, to be read once and closed.

    Raises:
        FileNotFoundError: there is none; while it is read, too:
        StorageError: the store refused, or has another object there meanwhile.
    """
    return BufferedReader(_ObjectBytes(bucket, key), BUFFER_BYTES)


class _ObjectBytes(RawIOBase):
    """Invariant: what was read ends at ``_at``, where ``_stretch`` goes on, or nothing does."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._at = 0
        self._stretches_left = TRIES
        self._reason = "it ends too early"
        self._stretch = bucket.stretch(key, 0, FIRST_BYTES, version=None)
        self._size = self._stretch.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        while self._at < self._size:
            try:
                chunk = self._stretch.read(len(view))
            except ConnectionError as error:
                chunk = b""
                self._reason = str(error)
            if chunk:
                view[: len(chunk)] = chunk
                self._at += len(chunk)
                return len(chunk)
            self._go_on()
        return 0

    def _go_on(self) -> None:
        """Have all behind ``_at`` sent."""
        self._stretch.close()
        self._stretches_left -= 1
        if self._stretches_left == 0:
            file = self._bucket.as_text(self._key)
            raise StorageError("object not read", file=file, reason=self._reason)
        version = self._stretch.version
        self._stretch = self._bucket.stretch(self._key, self._at, None, version=version)

    def close(self) -> None:
        self._stretch.close()
        super().close()
