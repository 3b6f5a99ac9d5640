"""Bucket: objects of an object store below a prefix, put on condition, by any store's client.

Which store a place is of is the matter of ``bucket_opening``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from io import RawIOBase
from pathlib import Path
from typing import IO, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, StorageError

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

Value = TypeVar("Value")
Token = TypeVar("Token")

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

    def get(self, key: str, *, bytes_max: int) -> StoredObject | None:
        """The object; None without one.

        Raises:
            CorruptLogError: it is larger than that: no object of ours.
        """
        with suppress(FileNotFoundError):
            return self._ask("object not read", key, partial(self._got, key, bytes_max))
        return None

    @abstractmethod
    def _got(self, key: str, bytes_max: int) -> StoredObject:
        """The object, as the client has it."""

    def put(self, key: str, content: bytes, *, over: str | None) -> str | None:
        """Write the object if it is still of version ``over`` (None: if there is none).

        Where this raises it may be written or not. A put that was tried again may find its own
        first attempt: what is there is read, and told by its bytes.

        Returns:
            Its version now; None when the condition was not met, and nothing was written.
        """
        try:
            return self._sent(key, content, over)
        except FileNotFoundError:
            return None
        except StorageError as error:
            self._check_refusal(error)
        found = self.get(key, bytes_max=OBJECT_BYTES_MAX)
        return found.version if found is not None and found.content == content else None

    @abstractmethod
    def _sent(self, key: str, content: bytes, over: str | None) -> str:
        """Ask for a put on condition; the version of what was made of it."""

    def _check_refusal(self, error: StorageError) -> None:
        """Raise what is no answer to a condition that is not met."""
        status = self._status(error.__cause__)
        if status == HTTPStatus.NOT_IMPLEMENTED:
            raise ConfigError(NO_CONDITIONS, **error.details) from error
        if status not in NOT_MET:
            raise error

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

    def fetch(self, key: str, file: Path) -> None:
        """Make ``file`` of the object's bytes."""
        self._ask("object not read", key, partial(self._fetched, key, file))

    @abstractmethod
    def _fetched(self, key: str, file: Path) -> None:
        """Have the client write the object's bytes into ``file``."""

    def copy(self, source: str, target: str) -> bool:
        """Let the store copy an object of up to 5 GiB, whole or not at all; false without one."""
        try:
            self._ask("object not copied", target, partial(self._copied, source, target))
        except FileNotFoundError:
            return False
        return True

    @abstractmethod
    def _copied(self, source: str, target: str) -> None:
        """Have the store copy an object, and wait until it has."""

    @abstractmethod
    def listed(self, prefix: str = "", *, at_most: int = LIST_MAX) -> Iterator[str]:
        """Keys with that beginning, in their order; so many are asked for at once."""

    @abstractmethod
    def level(self, folder: str) -> Iterator[str]:
        """What stands right below ``folder`` (empty, or with ``/`` at its end), without it:
        objects, and folders with ``/`` at their ends.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; they need not be there. With a request each, several at once."""

        def deleted(key: str) -> None:
            with suppress(FileNotFoundError):
                self._ask("object not deleted", key, partial(self._deleted, key))

        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="bucket") as pool:
            list(pool.map(deleted, keys))

    def _deleted(self, key: str) -> object:
        """Have the client delete one object."""
        raise NotImplementedError

    def unended(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Uploads of parts below ``prefix`` that nobody has ended: their keys and ids.

        None of a store that does not list them, or that lets them go by itself.
        """
        return iter(())

    def give_up(self, key: str, upload: str) -> None:
        """Delete the parts of an upload: they cost money. Nothing where they go by themselves."""
        del key, upload

    def get_all(self, keys: Iterable[str]) -> Iterator[StoredObject | None]:
        """Objects in the order of their keys, several asked for at once."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="bucket") as pool:
            yield from pool.map(partial(self.get, bytes_max=OBJECT_BYTES_MAX), keys)

    def copy_all(self, pairs: Iterable[tuple[str, str]]) -> int:
        """Copy several at once; how many there were."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="bucket") as pool:
            return sum(pool.map(lambda pair: self.copy(*pair), pairs))

    def _ask(self, what: str, key: str, call: Callable[[], Value]) -> Value:
        """What the store answers, with what may come of it as our errors.

        ``call`` is made again when its answer is not what the store has, which clients do not do.
        """
        for left in reversed(range(ANSWER_TRIES)):
            try:
                return call()
            except self._errors as error:
                if left and self._is_not_whole(error):
                    continue
                if self._is_missing(error):
                    raise FileNotFoundError(self.as_text(key)) from error
                raise self._refused(what, key, error) from error
        raise AssertionError("unreachable")

    def _ask_there(self, what: str, key: str, call: Callable[[], Value]) -> Value:
        """The same of what needs no object: where something is missing, it is the bucket."""
        try:
            return self._ask(what, key, call)
        except FileNotFoundError as error:
            raise self._no_bucket(key) from error

    def _paged(
        self, prefix: str, page: Callable[[Token | None], tuple[Value, Token | None]]
    ) -> Iterator[Value]:
        """What stands on the pages of a listing; ``page`` has one, and a token for the next one."""
        token: Token | None = None
        while True:
            found, token = self._ask_there("objects not listed", prefix, partial(page, token))
            yield found
            if not token:
                return

    def _in_ranges(
        self, key: str, start: int, stop: int, ranged: Callable[[int, int], bytes]
    ) -> RangedBody:
        """The bytes from ``start`` to ``stop``, of which ``ranged`` has some at once."""

        def read(begin: int, end: int) -> bytes:
            return self._ask("object not read", key, lambda: whole(ranged(begin, end), end - begin))

        return RangedBody(read, start, stop, RANGE_BYTES)

    @property
    @abstractmethod
    def _errors(self) -> tuple[type[Exception], ...]:
        """What the store's client raises when it cannot do what it is asked, or not yet."""

    @abstractmethod
    def _is_missing(self, error: Exception) -> bool:
        """Whether the store says that it has no such object."""

    @abstractmethod
    def _is_not_whole(self, error: Exception) -> bool:
        """Whether an answer was changed on its way or ended too early: it is asked for anew."""

    @abstractmethod
    def _refused(self, what: str, key: str, error: Exception) -> LedgerError:
        """Our error for one of the client's."""

    @abstractmethod
    def _status(self, error: BaseException | None) -> int | None:
        """HTTP's status of what the store has answered."""

    @abstractmethod
    def _no_bucket(self, key: str) -> Exception:
        """The error where what is asked for needs no object, and is missing."""

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


def answered_at(text: str | None) -> datetime:
    """When it was answered, by the clock of the store (``Date``); without that by ours."""
    try:
        return parsedate_to_datetime(text or "").astimezone(UTC)
    except ValueError:
        return datetime.now(UTC)


def refuse_keys_in(endpoint: str, *, setting: str, allowed: str) -> None:
    """Refuse an address that has a user or a password in it: it would stand in errors.

    Raises:
        ConfigError: it has.
    """
    asked = urlsplit(endpoint)
    if asked.username is not None or asked.password is not None:
        raise ConfigError("endpoint with keys in it", setting=setting, allowed=allowed)
