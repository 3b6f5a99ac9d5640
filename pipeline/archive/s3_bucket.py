"""S3 bucket: objects below a prefix, put on condition, by Amazon's client.

Busy answers (503, 429), lost connections and answers that do not come are tried again, each within
``READ_TIMEOUT_S`` and ``TRIES`` times; then they are a ``StorageError``. A put on condition that
was tried again may find its own first attempt: what is there is read, and told by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

try:
    import boto3
    from boto3.exceptions import Boto3Error
    from boto3.s3.transfer import TransferConfig
    from botocore.client import BaseClient
    from botocore.config import Config
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        IncompleteReadError,
        ReadTimeoutError,
        ResponseStreamingError,
    )

    IS_INSTALLED = True
except ModuleNotFoundError:
    IS_INSTALLED = False

from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60
TRIES = 8
"""Of one request, with pauses between them that grow to 20 s."""

BODY_TRIES = 3
"""Of an answer that is cut off within its bytes."""

REQUESTS_AT_ONCE = 16
"""Of one process: what many small objects take is the way there and back."""

DELETES_MAX = 1_000
"""Of one request, as S3 has it."""

OBJECT_BYTES_MAX = 1 << 30
"""Of one that is read into memory: a document of the manifest has some 300 bytes a file."""

_OTHERWISE = {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT}
"""What a put is answered whose condition is not met, or was not while another put was done."""


class S3Place(NamedTuple):
    """Where a bucket is, for all processes alike; keys to it are those of each host.

    Attributes:
        prefix: of all keys, with ``/`` at its end; or empty.
        endpoint, region: None for what boto3 finds in its files and variables.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None


class StoredObject(NamedTuple):
    """An object's bytes, and its version: what a condition asks for (its ETag)."""

    content: bytes
    version: str


class S3Bucket:
    """The objects below the prefix of a place; keys are below it.

    All that asks raises ``StorageError`` when the store refuses or does not answer, and
    ``FileNotFoundError`` where an object is needed that is not there.
    """

    def __init__(self, place: S3Place) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: boto3 is not installed, or does not take the place.
        """
        if not IS_INSTALLED:
            raise ConfigError(
                "archives in object stores need boto3: pip install 'ledgermq[spark]'",
                bucket=place.bucket,
            )
        try:
            self._client = _client(place.endpoint, place.region)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                "object store not known", bucket=place.bucket, reason=str(error)
            ) from error
        meta = self._client.meta
        endpoint = None if _is_amazon(meta.endpoint_url) else meta.endpoint_url
        self.place = place._replace(endpoint=endpoint, region=meta.region_name)

    def get(self, key: str, *, bytes_max: int) -> StoredObject | None:
        """The object; None without one.

        Raises:
            CorruptLogError: it is larger than that: no object of ours.
        """
        for left in reversed(range(BODY_TRIES)):
            try:
                with self._asked("object not read", key):
                    found = self._client.get_object(**self._named(key))
                    if found["ContentLength"] > bytes_max:
                        raise CorruptLogError(
                            "object is too large for what it is to be",
                            file=self.as_text(key),
                            bytes=found["ContentLength"],
                            allowed=bytes_max,
                        )
                    return StoredObject(found["Body"].read(), found["ETag"])
            except FileNotFoundError:
                return None
            except StorageError as error:
                if not (left and _is_cut_off(error.__cause__)):
                    raise
        raise AssertionError("unreachable")

    def put(self, key: str, content: bytes, *, over: str | None) -> str | None:
        """Write the object if it is still of version ``over`` (None: if there is none).

        Where this raises it may be written or not.

        Returns:
            Its version now; None when the condition was not met, and nothing was written.
        """
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        try:
            with self._asked("object not written", key):
                done = self._client.put_object(**self._named(key), Body=content, **condition)
                return str(done["ETag"])
        except FileNotFoundError:
            return None
        except StorageError as error:
            if _status(error.__cause__) not in _OTHERWISE:
                raise
        found = self.get(key, bytes_max=OBJECT_BYTES_MAX)
        return found.version if found is not None and found.content == content else None

    def upload(self, key: str, file: Path) -> None:
        """Write the object with all bytes of ``file``; large ones go in parts."""
        named = self._named(key)
        with self._asked("object not written", key):
            self._client.upload_file(str(file), named["Bucket"], named["Key"], Config=_alone())

    def fetch(self, key: str, file: Path) -> None:
        """Make ``file`` of the object's bytes."""
        named = self._named(key)
        with self._asked("object not read", key):
            self._client.download_file(named["Bucket"], named["Key"], str(file), Config=_alone())

    def copy(self, source: str, target: str) -> bool:
        """Let the store copy an object; false when there is none."""
        named = self._named(target)
        try:
            with self._asked("object not copied", target):
                self._client.copy(
                    self._named(source), named["Bucket"], named["Key"], Config=_alone()
                )
        except FileNotFoundError:
            return False
        return True

    def listed(self, prefix: str = "", *, at_most: int | None = None) -> Iterator[str]:
        """Keys with that beginning, in their order."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.place.bucket,
            Prefix=self.place.prefix + prefix,
            PaginationConfig={} if at_most is None else {"MaxItems": at_most},
        )
        with self._asked("objects not listed", prefix):
            for page in pages:
                for item in page.get("Contents", ()):
                    yield item["Key"].removeprefix(self.place.prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; they need not be there."""
        waiting = [{"Key": self.place.prefix + key} for key in keys]
        for begin in range(0, len(waiting), DELETES_MAX):
            asked = {"Objects": waiting[begin : begin + DELETES_MAX], "Quiet": True}
            with self._asked("objects not deleted", ""):
                done = self._client.delete_objects(Bucket=self.place.bucket, Delete=asked)
            for fault in done.get("Errors", ()):
                raise StorageError(
                    "object not deleted", file=fault.get("Key"), reason=fault.get("Message")
                )

    def unended(self, prefix: str) -> list[tuple[str, str]]:
        """Uploads of parts below ``prefix`` that nobody has ended: their keys and ids."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self.place.bucket, Prefix=self.place.prefix + prefix
        )
        with self._asked("uploads not listed", prefix):
            return [
                (upload["Key"].removeprefix(self.place.prefix), upload["UploadId"])
                for page in pages
                for upload in page.get("Uploads", ())
            ]

    def give_up(self, key: str, upload: str) -> None:
        """Delete the parts of an upload: they cost money."""
        try:
            with self._asked("upload not given up", key):
                self._client.abort_multipart_upload(**self._named(key), UploadId=upload)
        except FileNotFoundError:
            return

    def get_all(self, keys: Iterable[str]) -> Iterator[StoredObject | None]:
        """Objects in the order of their keys, several asked for at once."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="s3") as pool:
            yield from pool.map(partial(self.get, bytes_max=OBJECT_BYTES_MAX), keys)

    def copy_all(self, pairs: Iterable[tuple[str, str]]) -> int:
        """Copy several at once; how many there were."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="s3") as pool:
            return sum(pool.map(lambda pair: self.copy(*pair), pairs))

    def as_text(self, key: str = "") -> str:
        """A key as people write it."""
        return f"s3://{self.place.bucket}/{self.place.prefix}{key}"

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.prefix + key}

    @contextmanager
    def _asked(self, what: str, key: str) -> Iterator[None]:
        """One request, with what may come of it as our errors."""
        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if _status(error) == HTTPStatus.NOT_FOUND and code != "NoSuchBucket":
                raise FileNotFoundError(self.as_text(key)) from error
            raise self._refused(what, key, error) from error
        except (BotoCoreError, Boto3Error, OSError) as error:
            raise self._refused(what, key, error) from error

    def _refused(self, what: str, key: str, error: Exception) -> StorageError:
        return StorageError(
            what,
            errno=getattr(error, "errno", None),
            file=self.as_text(key),
            reason=str(error)[:300],
        )


def _status(error: BaseException | None) -> int | None:
    """HTTP's status of what a store has answered."""
    if not isinstance(error, ClientError):
        return None
    found = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return found if isinstance(found, int) else None


def _is_cut_off(error: BaseException | None) -> bool:
    """Whether an answer has ended within its bytes, which the client does not try again."""
    return isinstance(error, (IncompleteReadError, ReadTimeoutError, ResponseStreamingError))


def _is_amazon(endpoint: str) -> bool:
    """Whether it is what a client finds by the region alone."""
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _alone() -> TransferConfig:
    """Spark has as many tasks at once as there is to do: none of them needs threads."""
    return TransferConfig(use_threads=False)


@lru_cache(maxsize=8)
def _client(endpoint: str | None, region: str | None) -> BaseClient:
    """A client of this process; its threads share it."""
    return boto3.client(
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
