"""Bucket address: ``s3://BUCKET/PREFIX`` or another store's, never with keys in it."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ledgermq.model.errors import ConfigError

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfss", "abfss": "abfss"}
"""Schemes of addresses, and the store that each means."""

FORM = (
    "s3://BUCKET/PREFIX (or s3a://), gs://BUCKET/PREFIX, "
    "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"
)
"""What is taken."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
"""Google's names that are of a domain are the longest; a name that is none, the store refuses."""

_CONTAINER = r"[a-z0-9][a-z0-9-]{2,62}"
_HOST = r"[a-z0-9]{3,24}\.(?:dfs|blob)\.[a-z0-9.-]+"
_OF_AZURE = re.compile(rf"abfss?://{_CONTAINER}@{_HOST}(?:/[^@]*)?")


class BucketPlace(NamedTuple):
    """Where a bucket is, for all processes alike; keys to it are those of each host.

    Attributes:
        prefix: of all keys, with ``/`` at its end; or empty.
        endpoint, region: None for what the store's client finds in its files and variables.
        scheme: of the store, as addresses have it.
        host: of the account that Azure's containers are in; else empty.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    scheme: str = "s3"
    host: str = ""

    def below(self, name: str) -> BucketPlace:
        """The place of what stands under ``name`` here."""
        return self._replace(prefix=f"{self.prefix}{name}/")

    def as_text(self, key: str = "") -> str:
        """Address of the object ``key`` here."""
        at = f"@{self.host}" if self.host else ""
        return f"{self.scheme}://{self.bucket}{at}/{self.prefix}{key}"


def is_address(text: str) -> bool:
    """Whether it is an address, of whatever kind, and no path."""
    return "://" in text


def parse_address(text: str, *, of: str, reserved: Collection[str] = ()) -> BucketPlace:
    """The place that ``text`` names.

    Args:
        of: what is to be there, as the error says it.
        reserved: what no part of the prefix may be called.

    Raises:
        ConfigError: no bucket, or a prefix that readers understand in two ways.
    """
    scheme, _, path = text.partition("://")
    bucket, _, prefix = path.partition("/")
    host = ""
    if SCHEMES.get(scheme) == "abfss":
        bucket, _, host = bucket.partition("@")
        is_known = _OF_AZURE.fullmatch(f"{scheme}://{bucket}@{host}") is not None
    else:
        is_known = scheme in SCHEMES and _BUCKET.fullmatch(bucket) is not None
    prefix = prefix.strip("/")
    parts = prefix.split("/") if prefix else []
    # Readers see "a/./b" as "a/b", where S3 has two different keys.
    is_strange = {"", ".", "..", *reserved} & set(parts)
    if not is_known or is_strange:
        raise ConfigError(
            f"not the place of {of}; keys go into the settings of the store's own client",
            value=without_keys(text),
            form=FORM,
        )
    prefix = f"{prefix}/" if prefix else ""
    return BucketPlace(bucket, prefix, scheme=SCHEMES[scheme], host=host)


def without_keys(place: str) -> str:
    """A place as it may be shown: who writes keys before a bucket's name, as Hadoop once had it,
    must not find them in a log.
    """
    if _OF_AZURE.fullmatch(place):
        return place
    before, at, bucket = place.rpartition("@")
    return f"{before.partition('://')[0]}://...@{bucket}" if at else place
