"""Azure bucket: blobs of a container below a prefix, put on condition of ETags, by Azure's client.

Busy answers, lost connections and answers that do not come are tried again by the client. A put on
condition that was tried again may find its own first attempt: what is there is read, and told by
its bytes.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from io import SEEK_END, BytesIO, RawIOBase
from pathlib import Path
from typing import IO

try:
    from azure.core import MatchConditions
    from azure.core.exceptions import (
        AzureError,
        HttpResponseError,
        ResourceNotFoundError,
        ServiceRequestError,
        ServiceResponseError,
    )
    from azure.core.paging import ItemPaged
    from azure.storage.blob import (
        BlobBlock,
        BlobClient,
        BlobProperties,
        BlobServiceClient,
        ExponentialRetry,
    )

    IS_INSTALLED = True
except ModuleNotFoundError:
    IS_INSTALLED = False

from ledgermq.buckets.bucket import (
    CONNECT_TIMEOUT_S,
    LIST_MAX,
    READ_TIMEOUT_S,
    REASON_MAX,
    Bucket,
    StoredObject,
    Stretch,
    answered_at,
    check_size,
    whole,
)
from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.model.errors import ConfigError, LedgerError, StorageError

RETRIES = 6
"""Times that one request is repeated, with pauses between that double: a minute."""

BLOCK_BYTES = 8 << 20
"""What has more goes in blocks of so many, each of which stands in memory."""

COPY_POLL_S = 0.2
"""While the store copies on; within one account it has copied when it answers."""

_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
_KEY = "AZURE_STORAGE_KEY"
_TOKEN = "AZURE_STORAGE_SAS_TOKEN"  # noqa: S105
_KEYS = f"{_CONNECTION}, {_KEY} or {_TOKEN}, or azure-identity for what az and machines have"
_UNKNOWN = {
    "AuthenticationFailed",
    "AuthorizationFailure",
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
}

_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
"""What the client makes of an answer that has ended within its head or its lines."""


class AzureBucket(Bucket):
    """Blobs of one of Azure's containers; a version is an ETag.

    Blocks that nobody has put together go by themselves, in a week.
    """

    no_version = '"0x0"'

    def __init__(self, place: BucketPlace) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: azure-storage-blob is not installed, or has no keys.
        """
        if not IS_INSTALLED:
            raise ConfigError(
                "Azure's object stores need azure-storage-blob: "
                "pip install 'ledgermq[buckets-azure]'; the Debian package has no such client",
                bucket=place.bucket,
            )
        try:
            service = _service(place.host)
        except ValueError as error:
            raise ConfigError(
                "object store not known", bucket=place.bucket, setting=_KEYS
            ) from error
        self._container = service.get_container_client(place.bucket)
        self.place = place

    def _got(self, key: str, bytes_max: int) -> StoredObject:
        told: dict[str, str] = {}
        found = self._blob(key).download_blob(
            validate_content=True,
            raw_response_hook=lambda answer: told.update(_headers(answer.http_response)),
        )
        self.check_bound(key, found.size, bytes_max)
        content = whole(found.readall(), found.size)
        written_at = found.properties.last_modified
        age_s = (answered_at(told.get("date")) - written_at).total_seconds()
        return StoredObject(content, _etag(found.properties.etag), max(0.0, age_s))

    def _sent(self, key: str, content: bytes, over: str | None) -> str:
        condition = _if_none() if over is None else _if_still(over)
        return self._sent_all(key, BytesIO(content), condition)

    def put_new(self, key: str, content: IO[bytes] | RawIOBase, crc: int) -> bool:
        """Write the object with all bytes of ``content`` if there is none; the client sends an MD5
        of what it reads, and Azure compares it.
        """
        try:
            self._sent_all(key, content, _if_none())
        except StorageError as error:
            self._check_refusal(error)
            return False
        return True

    def upload(self, key: str, file: Path) -> None:
        """Write the object with all bytes of ``file``; blocks of an upload that was killed go by
        themselves, in a week."""
        with file.open("rb") as content:
            self._sent_all(key, content, {})

    def _sent_all(
        self, key: str, content: IO[bytes] | RawIOBase, condition: Mapping[str, object]
    ) -> str:
        """Send all of the content; the version of what was made of it."""
        size = content.seek(0, SEEK_END)
        blob = self._blob(key)

        def sent() -> str:
            content.seek(0)
            if size <= BLOCK_BYTES:
                done = blob.upload_blob(
                    _read(content, size), overwrite=True, validate_content=True, **condition
                )
                return _etag(done["etag"])
            # With names of its own: two that put the same key must not get one another's blocks.
            word, blocks = uuid.uuid4().hex, []
            for number, begin in enumerate(range(0, size, BLOCK_BYTES)):
                name = f"{word}{number:08d}"
                chunk = _read(content, min(BLOCK_BYTES, size - begin))
                blob.stage_block(name, chunk, validate_content=True)
                blocks.append(BlobBlock(block_id=name))
            return _etag(blob.commit_block_list(blocks, **condition)["etag"])

        return self._ask_there("object not written", key, sent)

    def stretch(self, key: str, start: int, end: int | None, *, version: str | None) -> Stretch:
        """Have bytes from ``start`` to ``end`` sent: they are asked for in ranges, each of which
        the client tries again.
        """
        condition = {} if version is None else _if_still(version)

        def asked() -> tuple[int, str]:
            found = self._blob(key).get_blob_properties(**condition)
            if found.last_modified is None:
                raise ValueError("an answer that ends within its head")
            return int(found.size), _etag(found.etag)

        size, etag = self._ask("object not read", key, asked)
        stop = size if end is None else min(end, size)
        if start >= size:
            return Stretch(None, size, etag)

        def ranged(begin: int, end: int) -> bytes:
            blob, still = self._blob(key), _if_still(etag)
            sent: bytes = blob.download_blob(offset=begin, length=end - begin, **still).readall()
            return sent

        return Stretch(self._in_ranges(key, start, stop, ranged), size, etag)

    def _fetched(self, key: str, file: Path) -> None:
        found = self._blob(key).download_blob(validate_content=True)
        with file.open("wb") as target:
            check_size(found.readinto(target), found.size)

    def _copied(self, source: str, target: str) -> None:
        made = self._blob(target)
        status = made.start_copy_from_url(self._blob(source).url)["copy_status"]
        while status == "pending":
            time.sleep(COPY_POLL_S)
            status = made.get_blob_properties().copy.status
        if status is None:
            raise ValueError("no status in the answer")
        if status != "success":
            raise OSError(f"the store has ended a copy: {status}")

    def listed(self, prefix: str = "", *, at_most: int = LIST_MAX) -> Iterator[str]:
        # Folders of a hierarchical namespace are listed as blobs, and said to be some by a note.
        list_page = partial(
            self._container.list_blobs,
            name_starts_with=self.place.prefix + prefix,
            include=["metadata"],
            results_per_page=at_most,
        )
        for page in self._pages(prefix, list_page):
            for blob in page:
                if (blob.metadata or {}).get("hdi_isfolder") != "true":
                    yield blob.name.removeprefix(self.place.prefix)

    def level(self, folder: str) -> Iterator[str]:
        list_page = partial(
            self._container.walk_blobs, name_starts_with=self.place.prefix + folder, delimiter="/"
        )
        for page in self._pages(folder, list_page):
            yield from (one.name.removeprefix(self.place.prefix + folder) for one in page)

    def _pages(
        self, prefix: str, list_page: Callable[[], ItemPaged]
    ) -> Iterator[list[BlobProperties]]:
        def page(token: str | None) -> tuple[list[BlobProperties], str | None]:
            found = list_page().by_page(continuation_token=token)
            return list(next(found, ())), found.continuation_token

        return self._paged(prefix, page)

    def _deleted(self, key: str) -> object:
        return self._blob(key).delete_blob()

    def _blob(self, key: str) -> BlobClient:
        return self._container.get_blob_client(self.place.prefix + key)

    def _no_bucket(self, key: str) -> Exception:
        return ConfigError(
            "no such bucket",
            file=self.as_text(key),
            setting="abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
        )

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (AzureError, OSError, *_MALFORMED)

    def _is_missing(self, error: Exception) -> bool:
        return isinstance(error, ResourceNotFoundError)

    def _status(self, error: BaseException | None) -> int | None:
        found = error.status_code if isinstance(error, HttpResponseError) else None
        return int(found) if found is not None else None

    def _is_not_whole(self, error: Exception) -> bool:
        """Whether an answer was changed on its way or ended too early; or another put of the same
        blob has dropped the blocks of this one.
        """
        # The client hands on what its transport says of a body that was cut off.
        if "IncompleteRead" in str(error):
            return True
        if isinstance(error, HttpResponseError):
            return _code(error) == "InvalidBlockList" or self._status(error) in (
                None,
                HTTPStatus.OK,
            )
        if isinstance(error, AzureError):
            # Others were tried again by the client; a sum that is wrong is not.
            return not isinstance(error, (ServiceRequestError, ServiceResponseError))
        return isinstance(error, _MALFORMED)

    def _refused(self, what: str, key: str, error: Exception) -> LedgerError:
        place = {"file": self.as_text(key), "endpoint": self._container.primary_hostname}
        reason = " ".join(str(error).split())[:REASON_MAX]
        is_unknown = self._status(error) == HTTPStatus.UNAUTHORIZED or _code(error) in _UNKNOWN
        # No credential that azure-identity has tried is one.
        if is_unknown or type(error).__name__ == "CredentialUnavailableError":
            return ConfigError(
                "object store does not know the key", **place, setting=_KEYS, reason=reason
            )
        number = getattr(error, "errno", None)
        return StorageError(what, errno=number, **place, reason=reason)


def _code(error: BaseException) -> str:
    found = getattr(error, "error_code", None)
    return str(getattr(found, "value", found) or "")


def _if_none() -> dict[str, object]:
    return {"match_condition": MatchConditions.IfMissing}


def _if_still(version: str) -> dict[str, object]:
    return {"etag": version, "match_condition": MatchConditions.IfNotModified}


def _headers(answer: object) -> dict[str, str]:
    headers: Mapping[str, str] = getattr(answer, "headers", {})
    return {name.lower(): value for name, value in headers.items()}


def _etag(found: object) -> str:
    """An ETag; the client takes an answer that ends within it for a whole one.

    Raises:
        ValueError: there is none, or a part of one.
    """
    etag = str(found or "")
    if len(etag) < 2 or etag.startswith('"') != etag.endswith('"'):
        raise ValueError("no ETag in the answer")
    return etag


def _read(content: IO[bytes] | RawIOBase, size: int) -> bytes:
    return whole(content.read(size) or b"", size)


@lru_cache(maxsize=8)
def _service(host: str) -> BlobServiceClient:
    """A client of this process; its threads share it.

    Raises:
        ConfigError: there are no keys, or those of another account.
    """
    how = {
        "connection_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retry_policy": ExponentialRetry(
            initial_backoff=0, increment_base=2, retry_total=RETRIES, random_jitter_range=1
        ),
    }
    account = host.partition(".")[0]
    text = os.environ.get(_CONNECTION)
    if text:
        service = BlobServiceClient.from_connection_string(text, **how)
        if service.account_name != account:
            raise ConfigError(
                "keys are of another account",
                setting=_CONNECTION,
                found=service.account_name,
                expected=account,
            )
        return service
    url = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    credential = os.environ.get(_KEY) or os.environ.get(_TOKEN) or _identity()
    return BlobServiceClient(url, credential=credential, **how)


def _identity() -> object:
    """What az, a machine or a workload has, by azure-identity."""
    try:
        # It is a package beside the client, which most do without.
        from azure.identity import DefaultAzureCredential
    except ModuleNotFoundError as error:
        raise ConfigError("no keys for the object store", setting=_KEYS) from error
    return DefaultAzureCredential()
