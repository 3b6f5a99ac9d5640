"""S3 bucket: objects below a prefix, put on condition, by Amazon's client.

Busy answers (503, 429), lost connections and answers that do not come are tried again, each within
``READ_TIMEOUT_S`` and ``TRIES`` times; then they are a ``StorageError``. A put on condition that
was tried again may find its own first attempt: what is there is read, and told by its bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from http import HTTPStatus
from io import RawIOBase
from pathlib import Path
from typing import IO, TypedDict
from urllib.parse import urlsplit

try:
    from boto3 import Session
    from boto3.exceptions import Boto3Error
    from boto3.s3.transfer import TransferConfig
    from botocore.client import BaseClient
    from botocore.config import Config
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        FlexibleChecksumError,
        IncompleteReadError,
        NoCredentialsError,
        PartialCredentialsError,
        ReadTimeoutError,
        ResponseStreamingError,
    )
    from botocore.parsers import ResponseParserError
    from botocore.response import StreamingBody

    IS_INSTALLED = True
except ModuleNotFoundError:
    IS_INSTALLED = False

from ledgermq.buckets.bucket import (
    ANSWER_TRIES,
    CONNECT_TIMEOUT_S,
    LIST_MAX,
    NO_CONDITIONS,
    READ_TIMEOUT_S,
    REASON_MAX,
    REQUESTS_AT_ONCE,
    TRIES,
    Bucket,
    StoredObject,
    Stretch,
    answered_at,
    check_size,
    refuse_keys_in,
)
from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.model.errors import ConfigError, LedgerError, StorageError

FETCH_BYTES = 1 << 20
"""Bytes of an object that are written to a file at once."""

PART_BYTES = 64 << 20
"""A file of so many bytes is uploaded in parts, a request each: that is what uploads cost most."""

_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or the role of a machine"
_ENDPOINT = "AWS_ENDPOINT_URL_S3"

_SETTINGS = {
    "InvalidAccessKeyId": ("object store does not know the key", _KEYS),
    "XAdminUserNotFound": ("object store does not know the key", _KEYS),
    "SignatureDoesNotMatch": ("object store does not take the secret key", _KEYS),
    "NoSuchBucket": ("no such bucket", "s3a://BUCKET/PREFIX"),
}
"""Answers that waiting does not change, and what would."""

_NO_OBJECT = {"NoSuchKey", "NoSuchUpload"}
"""Not all that is answered 404: some say so of a key that signs, or of the bucket."""

_OF_ANY_PAGE = {"IsTruncated", "Name", "Bucket"}
"""What a listing's answer has, also of nothing."""


class _Body:
    """An object's bytes, as ``StretchBody``."""

    def __init__(self, body: StreamingBody) -> None:
        """Wait for the first byte: an answer that has one has all of its head. To the client one
        that ends within its head is whole, and so is the half of an ETag or of a size in it.

        Raises:
            ValueError: none comes; it may be asked for again.
        """
        self._body = body
        try:
            self._first = self._read(1)
        except ConnectionError as error:
            raise ValueError(str(error)) from error
        if not self._first:
            raise ValueError("an answer without its body")

    def read(self, size: int) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first + self._read(size - 1)
        return self._read(size)

    def _read(self, size: int) -> bytes:
        try:
            return bytes(self._body.read(size))
        except (BotoCoreError, OSError) as error:
            raise ConnectionError(str(error)[:REASON_MAX]) from error

    def close(self) -> None:
        self._body.close()


class _Metadata(TypedDict):
    HTTPHeaders: dict[str, str]


class _Answer(TypedDict):
    """What is looked at of an object's answer."""

    ResponseMetadata: _Metadata
    LastModified: datetime


class _Key(TypedDict):
    Key: str


class _Prefix(TypedDict):
    Prefix: str


class _Upload(_Key):
    UploadId: str


class _Page(TypedDict, total=False):
    """What is looked at of a listing's answer, of objects or of uploads."""

    Contents: list[_Key]
    CommonPrefixes: list[_Prefix]
    Uploads: list[_Upload]
    IsTruncated: bool
    NextContinuationToken: str
    NextKeyMarker: str
    NextUploadIdMarker: str


class S3Bucket(Bucket):
    """Objects of S3, or of what speaks its protocol; a version is an ETag."""

    no_version = '"00000000000000000000000000000000"'

    def __init__(self, place: BucketPlace) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: boto3 is not installed, or does not take the place.
        """
        if not IS_INSTALLED:
            raise ConfigError(
                "object stores need boto3: pip install 'ledgermq[buckets]'",
                bucket=place.bucket,
            )
        try:
            self._client = _client(place.endpoint, place.region)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                "object store not known", bucket=place.bucket, reason=str(error)
            ) from error
        meta = self._client.meta
        refuse_keys_in(meta.endpoint_url, setting=_ENDPOINT, allowed=_KEYS)
        self._endpoint = meta.endpoint_url
        host = urlsplit(meta.endpoint_url).hostname or ""
        endpoint = None if _is_amazon(host, meta.region_name) else self._endpoint
        self.place = place._replace(endpoint=endpoint, region=meta.region_name)

    def _got(self, key: str, bytes_max: int) -> StoredObject:
        found = self._client.get_object(**self._named(key))
        self.check_bound(key, found["ContentLength"], bytes_max)
        return StoredObject(found["Body"].read(), found["ETag"], _age_s(found))

    def _sent(self, key: str, content: bytes, over: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        ask = partial(self._client.put_object, **self._named(key), Body=content, **condition)
        return self._ask("object not written", key, lambda: _version(ask()["ETag"]))

    def put_new(self, key: str, content: IO[bytes] | RawIOBase, crc: int) -> bool:
        told = b64encode(crc.to_bytes(4, "big")).decode()

        def done() -> None:
            content.seek(0)
            self._client.put_object(
                **self._named(key), Body=content, ChecksumCRC32=told, IfNoneMatch="*"
            )

        for left in reversed(range(ANSWER_TRIES)):
            try:
                self._ask("object not written", key, done)
            except StorageError as error:
                status = self._status(error.__cause__)
                if status == HTTPStatus.NOT_IMPLEMENTED:
                    raise ConfigError(NO_CONDITIONS, **error.details) from error
                if status == HTTPStatus.PRECONDITION_FAILED:
                    return False
                # Another put of it was under way: whether it is there by now is asked anew.
                if status != HTTPStatus.CONFLICT or not left:
                    raise
            else:
                return True
        raise AssertionError("unreachable")

    def stretch(self, key: str, start: int, end: int | None, *, version: str | None) -> Stretch:
        asked = self._named(key)
        asked["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        if version is not None:
            asked["IfMatch"] = version

        def answered() -> Stretch:
            found = self._client.get_object(**asked)
            _, _, whole = found.get("ContentRange", "").partition("/")
            size = int(whole) if whole.isdecimal() else start + found["ContentLength"]
            return Stretch(_Body(found["Body"]), size, found["ETag"])

        try:
            return self._ask("object not read", key, answered)
        except StorageError as error:
            if self._status(error.__cause__) != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            return Stretch(None, start, version or "")

    def upload(self, key: str, file: Path) -> None:
        named = self._named(key)
        self._ask(
            "object not written",
            key,
            lambda: self._client.upload_file(
                str(file), named["Bucket"], named["Key"], Config=_alone()
            ),
        )

    def _fetched(self, key: str, file: Path) -> None:
        # Not by s3transfer: it believes a size that was cut off.
        found = self._client.get_object(**self._named(key))
        with file.open("wb", buffering=0) as target:
            for chunk in found["Body"].iter_chunks(FETCH_BYTES):
                target.write(chunk)
            check_size(target.tell(), found["ContentLength"])

    def _copied(self, source: str, target: str) -> None:
        asked = {**self._named(target), "CopySource": self._named(source)}
        if not self._client.copy_object(**asked)["CopyObjectResult"]:
            raise ValueError("no copy in the answer")

    def listed(self, prefix: str = "", *, at_most: int = LIST_MAX) -> Iterator[str]:
        for page in self._pages(prefix, MaxKeys=at_most):
            for item in page.get("Contents", ()):
                yield item["Key"].removeprefix(self.place.prefix)

    def level(self, folder: str) -> Iterator[str]:
        for page in self._pages(folder, Delimiter="/"):
            keys = [item["Key"] for item in page.get("Contents", ())]
            keys += [item["Prefix"] for item in page.get("CommonPrefixes", ())]
            yield from (key.removeprefix(self.place.prefix + folder) for key in keys)

    def _pages(self, prefix: str, **how: object) -> Iterator[_Page]:
        asked = {"Bucket": self.place.bucket, "Prefix": self.place.prefix + prefix, **how}

        def page(token: str | None) -> tuple[_Page, str | None]:
            more = {} if token is None else {"ContinuationToken": token}
            found = _listing(partial(self._client.list_objects_v2, **asked, **more))
            return found, found["NextContinuationToken"] if found.get("IsTruncated") else None

        return self._paged(prefix, page)

    def delete(self, keys: Iterable[str]) -> None:
        waiting = [{"Key": self.place.prefix + key} for key in keys]
        for begin in range(0, len(waiting), LIST_MAX):
            asked = {"Objects": waiting[begin : begin + LIST_MAX], "Quiet": True}
            self._ask("objects not deleted", "", partial(self._deleted_all, asked))

    def _deleted_all(self, asked: dict[str, object]) -> None:
        """Have objects deleted.

        Raises:
            ValueError: some were not, though the request as a whole was done: it is made again.
        """
        done = self._client.delete_objects(Bucket=self.place.bucket, Delete=asked)
        for fault in done.get("Errors", ()):
            told = (str(fault.get(name)) for name in ("Key", "Code", "Message"))
            raise ValueError(": ".join(told))

    def unended(self, prefix: str) -> Iterator[tuple[str, str]]:
        asked = {"Bucket": self.place.bucket, "Prefix": self.place.prefix + prefix}
        while True:
            ask = partial(_listing, partial(self._client.list_multipart_uploads, **asked))
            try:
                page = self._ask("uploads not listed", prefix, ask)
            except StorageError as error:
                if self._status(error.__cause__) == HTTPStatus.NOT_IMPLEMENTED:
                    return
                raise
            for upload in page.get("Uploads", ()):
                yield upload["Key"].removeprefix(self.place.prefix), upload["UploadId"]
            if not page.get("IsTruncated"):
                return
            asked["KeyMarker"] = page["NextKeyMarker"]
            asked["UploadIdMarker"] = page["NextUploadIdMarker"]

    def give_up(self, key: str, upload: str) -> None:
        asked = partial(self._client.abort_multipart_upload, **self._named(key), UploadId=upload)
        with suppress(FileNotFoundError):
            self._ask("upload not given up", key, asked)

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.prefix + key}

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (ClientError, BotoCoreError, Boto3Error, OSError, KeyError, ValueError)

    def _is_missing(self, error: Exception) -> bool:
        if not isinstance(error, ClientError):
            return False
        return error.response.get("Error", {}).get("Code") in _NO_OBJECT

    def _status(self, error: BaseException | None) -> int | None:
        if not isinstance(error, ClientError):
            return None
        found = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return found if isinstance(found, int) else None

    def _is_not_whole(self, error: Exception) -> bool:
        """Whether an answer has ended within its lines or bytes; or was changed on its way.

        A line that is not there is a ``KeyError``, half of one a ``ValueError``. Bytes may be of
        two objects, too, as a server that keeps files may answer while one is replaced.
        """
        if isinstance(error, Boto3Error):
            # Parts were put together, and the answer was lost: asked once more, there are none.
            return "(NoSuchUpload)" in str(error)
        return isinstance(
            error,
            (
                *(IncompleteReadError, ReadTimeoutError, ResponseStreamingError),
                *(ResponseParserError, FlexibleChecksumError, KeyError, ValueError),
            ),
        )

    def _no_bucket(self, key: str) -> Exception:
        # Of a bucket that is not there the code says so, which is in the settings' table.
        return FileNotFoundError(self.as_text(key))

    def _refused(self, what: str, key: str, error: Exception) -> LedgerError:
        place = {"file": self.as_text(key), "endpoint": self._endpoint}
        if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
            return ConfigError("no keys for the object store", **place, setting=_KEYS)
        reason = str(error)[:REASON_MAX]
        told = next((_SETTINGS[code] for code in _SETTINGS if f"({code})" in reason), None)
        if told is not None:
            return ConfigError(told[0], **place, setting=told[1], reason=reason)
        return StorageError(what, errno=getattr(error, "errno", None), **place, reason=reason)


def _listing(call: Callable[[], _Page]) -> _Page:
    """The page that is answered.

    Raises:
        ValueError: there is none: to the client an answer that ends within its head is one without
            a body.
    """
    page = call()
    if page.keys().isdisjoint(_OF_ANY_PAGE):
        raise ValueError("no listing in the answer")
    return page


def _version(etag: str) -> str:
    """What a put was answered.

    Raises:
        ValueError: a part of it: the answer ends there.
    """
    if len(etag) < 2 or etag.startswith('"') != etag.endswith('"'):
        raise ValueError("half an ETag in the answer")
    return etag


def _age_s(answer: _Answer) -> float:
    """Seconds since an object was written; without the store's clock by ours."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    now = answered_at(headers.get("date"))
    return max(0.0, (now - answer["LastModified"]).total_seconds())


def _is_amazon(host: str, region: str) -> bool:
    """Whether it is what a client finds by the region alone; private endpoints are not."""
    return host in {"s3.amazonaws.com", *(f"s3.{region}.amazonaws.com{end}" for end in ("", ".cn"))}


def _alone() -> TransferConfig:
    """Spark has as many tasks at once as there is to do: none of them needs threads."""
    return TransferConfig(
        use_threads=False, multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES
    )


@lru_cache(maxsize=8)
def _client(endpoint: str | None, region: str | None) -> BaseClient:
    """A client of this process; its threads share it, but not the session that makes it."""
    return Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        config=Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=REQUESTS_AT_ONCE,
            retries={"mode": "standard", "total_max_attempts": TRIES},
        ),
    )
