"""Google bucket: objects below a prefix, put on condition of their generation, by Google's client.

Busy answers, lost connections and answers that do not come are tried again by the client, for
``RETRY_S``. A put on condition that was tried again may find its own first attempt: what is there
is read, and told by its bytes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache, partial
from http import HTTPStatus
from io import SEEK_END, RawIOBase
from pathlib import Path
from typing import IO

try:
    from google.api_core.client_options import ClientOptions
    from google.api_core.exceptions import GoogleAPICallError, NotFound, RetryError
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
    from google.cloud.storage import Blob, Client
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from google.cloud.storage.retry import DEFAULT_RETRY
    from requests import RequestException, Response
    from requests.adapters import HTTPAdapter

    IS_INSTALLED = True
except ModuleNotFoundError:
    IS_INSTALLED = False

from ledgermq.buckets.bucket import (
    CONNECT_TIMEOUT_S,
    LIST_MAX,
    READ_TIMEOUT_S,
    REASON_MAX,
    REQUESTS_AT_ONCE,
    Bucket,
    StoredObject,
    Stretch,
    answered_at,
    check_size,
    refuse_keys_in,
    whole,
)
from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.model.errors import ConfigError, LedgerError, StorageError

RETRY_S = 90
"""Seconds for which a request is tried again, with drawn pauses between that grow to 20 s."""

_KEYS = "GOOGLE_APPLICATION_CREDENTIALS, or gcloud's own, or the account of a machine"
_ENDPOINT = "STORAGE_EMULATOR_HOST"
_NOTHING = "0"
"""The generation of an object that is not there."""

_TIMEOUT_S = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)

_answered = threading.local()
"""``date``: what the store's clock said last to this thread."""


class GoogleBucket(Bucket):
    """Objects of Google Cloud Storage; a version is a generation.

    Google lists no uploads of parts that nobody has ended, takes nothing for them, and drops them
    in a week.
    """

    # A generation is the microsecond of a put.
    no_version = "1"

    def __init__(self, place: BucketPlace) -> None:
        """Nothing is asked yet, but for credentials.

        Raises:
            ConfigError: google-cloud-storage is not installed, or has no credentials.
        """
        if not IS_INSTALLED:
            raise ConfigError(
                "Google's object stores need google-cloud-storage: "
                "pip install 'ledgermq[buckets-google]'; the Debian package has no such client",
                bucket=place.bucket,
            )
        endpoint = place.endpoint or os.environ.get(_ENDPOINT) or None
        refuse_keys_in(endpoint or "", setting=_ENDPOINT, allowed=_KEYS)
        try:
            self._client = _client(endpoint)
        except (GoogleAuthError, OSError, ValueError) as error:
            raise ConfigError(
                "no keys for the object store",
                bucket=place.bucket,
                setting=_KEYS,
                reason=_reason(error),
            ) from error
        self._bucket = self._client.bucket(place.bucket)
        self._endpoint = endpoint or "storage.googleapis.com"
        self.place = place._replace(endpoint=endpoint)

    def _got(self, key: str, bytes_max: int) -> StoredObject:
        blob = self._found(key)
        age_s = max(0.0, (_store_time() - blob.updated).total_seconds())
        self.check_bound(key, blob.size, bytes_max)
        sent = self._blob(key).download_as_bytes(**_of(blob), **_patience())
        return StoredObject(whole(sent, blob.size), _version(blob), age_s)

    def _sent(self, key: str, content: bytes, over: str | None) -> str:
        def done() -> str:
            blob = self._blob(key)
            blob.upload_from_string(
                content, if_generation_match=int(over or _NOTHING), **_sending()
            )
            return _version(blob)

        return self._ask_there("object not written", key, done)

    def put_new(self, key: str, content: IO[bytes] | RawIOBase, crc: int) -> bool:
        """Write the object with all bytes of ``content`` if there is none; the client sends a
        CRC-32C of what it reads, and Google compares it.
        """
        size = content.seek(0, SEEK_END)

        def done() -> None:
            content.seek(0)
            self._blob(key).upload_from_file(
                content, size=size, if_generation_match=int(_NOTHING), **_sending()
            )

        try:
            self._ask_there("object not written", key, done)
        except StorageError as error:
            self._check_refusal(error)
            return False
        return True

    def stretch(self, key: str, start: int, end: int | None, *, version: str | None) -> Stretch:
        """Have bytes from ``start`` to ``end`` sent: they are asked for in ranges, each of which
        the client tries again.
        """
        blob = self._ask("object not read", key, partial(self._found, key))
        found = _version(blob)
        if version not in (None, found):
            raise StorageError(
                "object not read",
                file=self.as_text(key),
                reason="there is another one meanwhile",
            )
        size = blob.size
        stop = size if end is None else min(end, size)
        if start >= size:
            return Stretch(None, size, found)

        def ranged(begin: int, end: int) -> bytes:
            how = {**_of(blob), **_patience()}
            sent: bytes = self._blob(key).download_as_bytes(
                start=begin, end=end - 1, checksum=None, **how
            )
            return sent

        return Stretch(self._in_ranges(key, start, stop, ranged), size, found)

    def upload(self, key: str, file: Path) -> None:
        """Write the object with all bytes of ``file``; what is left of an upload in parts goes by
        itself, and costs nothing.
        """

        def sent() -> None:
            with file.open("rb") as content:
                size = content.seek(0, SEEK_END)
                content.seek(0)
                self._blob(key).upload_from_file(content, size=size, **_sending())

        self._ask("object not written", key, sent)

    def _fetched(self, key: str, file: Path) -> None:
        blob = self._found(key)
        with file.open("wb") as target:
            self._blob(key).download_to_file(target, **_of(blob), **_patience())
            check_size(target.tell(), blob.size)

    def _copied(self, source: str, target: str) -> None:
        made, token = self._blob(target), None
        while True:
            token, _, _ = made.rewrite(self._blob(source), token=token, **_patience())
            if token is None:
                return

    def listed(self, prefix: str = "", *, at_most: int = LIST_MAX) -> Iterator[str]:
        for names, _ in self._pages(prefix, page_size=at_most):
            for name in names:
                yield name.removeprefix(self.place.prefix)

    def level(self, folder: str) -> Iterator[str]:
        for names, folders in self._pages(folder, page_size=LIST_MAX, delimiter="/"):
            yield from (
                name.removeprefix(self.place.prefix + folder) for name in (*names, *folders)
            )

    def _pages(
        self, prefix: str, *, page_size: int, delimiter: str | None = None
    ) -> Iterator[tuple[list[str], list[str]]]:
        """Names of objects and of folders, page by page."""

        def page(token: str | None) -> tuple[tuple[list[str], list[str]], str | None]:
            found = self._client.list_blobs(
                self._bucket,
                prefix=self.place.prefix + prefix,
                delimiter=delimiter,
                page_size=page_size,
                page_token=token,
                fields="items(name),prefixes,nextPageToken",
                **_patience(),
            )
            names = [blob.name for blob in next(found.pages, ())]
            return (names, sorted(found.prefixes)), found.next_page_token

        return self._paged(prefix, page)

    def _deleted(self, key: str) -> object:
        return self._blob(key).delete(**_patience())

    def _blob(self, key: str) -> Blob:
        return self._bucket.blob(self.place.prefix + key)

    def _found(self, key: str) -> Blob:
        """What is known of the object.

        Not what to read it by: the client would ask at the address that this has of it.
        """
        blob = self._blob(key)
        blob.reload(**_patience())
        return blob

    def _no_bucket(self, key: str) -> ConfigError:
        return ConfigError(
            "no such bucket",
            file=self.as_text(key),
            endpoint=self._endpoint,
            setting="gs://BUCKET/PREFIX",
        )

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (
            *(GoogleAPICallError, GoogleAuthError, InvalidResponse, DataCorruption, RetryError),
            *(RequestException, OSError, AttributeError, KeyError, TypeError, ValueError),
        )

    def _is_missing(self, error: Exception) -> bool:
        return isinstance(error, NotFound)

    def _status(self, error: BaseException | None) -> int | None:
        if isinstance(error, RetryError):
            error = error.__cause__
        if isinstance(error, InvalidResponse):
            return int(error.response.status_code)
        return int(error.code) if isinstance(error, GoogleAPICallError) and error.code else None

    def _is_not_whole(self, error: Exception) -> bool:
        """Whether an answer was changed on its way, ended too early, or is of what was replaced.

        One that ended within its head has neither its sum nor its type, which the client takes for
        what it is not: an ``AttributeError`` or a ``TypeError``.
        """
        is_replaced = self._status(error) == HTTPStatus.PRECONDITION_FAILED and _is_read(error)
        is_gone = self._status(error) == HTTPStatus.GONE or isinstance(error, NotFound)
        return (
            is_replaced
            or (is_gone and _is_session_gone(error))
            or (
                isinstance(error, (DataCorruption, AttributeError, KeyError, TypeError, ValueError))
                and not isinstance(error, GoogleAPICallError)
            )
        )

    def _refused(self, what: str, key: str, error: Exception) -> LedgerError:
        place = {"file": self.as_text(key), "endpoint": self._endpoint}
        if isinstance(error, DefaultCredentialsError):
            return ConfigError("no keys for the object store", **place, setting=_KEYS)
        is_away = isinstance(error, TransportError)
        is_unknown = self._status(error) == HTTPStatus.UNAUTHORIZED
        if is_unknown or (isinstance(error, GoogleAuthError) and not is_away):
            return ConfigError(
                "object store does not know the key", **place, setting=_KEYS, reason=_reason(error)
            )
        number = getattr(error, "errno", None)
        return StorageError(what, errno=number, **place, reason=_reason(error))


def _note_date(answer: Response, *_how: object, **_more: object) -> None:
    _answered.date = answer.headers.get("Date")


def _store_time() -> datetime:
    """The time by the clock of the store; by ours, where the store has not told its own."""
    return answered_at(getattr(_answered, "date", None))


def _patience() -> dict[str, object]:
    retry = DEFAULT_RETRY.with_delay(initial=0.5, maximum=20).with_timeout(RETRY_S)
    return {"timeout": _TIMEOUT_S, "retry": retry}


def _sending() -> dict[str, object]:
    return {"content_type": "application/octet-stream", "checksum": "crc32c", **_patience()}


def _of(blob: Blob) -> dict[str, int]:
    """The condition that it is still what was found."""
    return {"if_generation_match": blob.generation}


def _version(blob: Blob) -> str:
    if blob.generation is None:
        raise ValueError("no generation in the answer")
    return str(blob.generation)


def _reason(error: BaseException) -> str:
    # What was tried again says so, and what for.
    cause = error.__cause__ if isinstance(error, RetryError) and error.__cause__ else error
    answer = getattr(cause, "response", None)
    told = f": {answer.text}" if isinstance(answer, Response) else ""
    return f"{cause}{told}"[:REASON_MAX]


def _is_session_gone(error: Exception) -> bool:
    """Whether an upload in parts has to begin anew: the store no longer knows of this one."""
    asked = getattr(getattr(error, "response", None), "request", None)
    return "upload_id=" in (getattr(asked, "url", None) or "")


def _is_read(error: Exception) -> bool:
    asked = getattr(getattr(error, "response", None), "request", None)
    return getattr(asked, "method", "") == "GET"


@lru_cache(maxsize=8)
def _client(endpoint: str | None) -> Client:
    """A client of this process; its threads share it."""
    if endpoint is None:
        client = Client(project=None)
    else:
        # As the client has it of an emulator: a driver's may not be in a worker's environment.
        client = Client(
            project=None,
            credentials=AnonymousCredentials(),
            client_options=ClientOptions(api_endpoint=endpoint),
        )
    session = client._http
    if not session.is_mtls:
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=REQUESTS_AT_ONCE))
    session.hooks["response"].append(_note_date)
    return client
