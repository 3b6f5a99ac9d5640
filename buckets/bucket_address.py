"""Bucket address: ``s3://BUCKET/PREFIX`` or another store's, never with keys in it."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ledgermq.model.errors import ConfigError

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs"}
"""Of addresses, and the store that each means."""

FORM = "s3://BUCKET/PREFIX (or s3a://), gs://BUCKET/PREFIX"
"""What is taken."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
"""Google's names that are of a domain are the longest; a name that is none, the store refuses."""


class BucketPlace(NamedTuple):
    """Where a bucket is, for all processes alike; keys to it are those of each host.

    Attributes:
        prefix: of all keys, with ``/`` at its end; or empty.
        endpoint, region: None for what the store's client finds in its files and variables.
        scheme: of the store, as addresses have it.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    scheme: str = "s3"

    def below(self, name: str) -> BucketPlace:
        """The place of what stands under ``name`` here."""
        return self._replace(prefix=f"{self.prefix}{name}/")

    def as_text(self, key: str = "") -> str:
        """Address of the object ``key`` here."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}{key}"


S3Place = BucketPlace
"""The name that backup streams know it by."""


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
    prefix = prefix.strip("/")
    parts = prefix.split("/") if prefix else []
    # Readers see "a/./b" as "a/b", where S3 has two different keys.
    is_strange = {"", ".", "..", *reserved} & set(parts)
    if scheme not in SCHEMES or not _BUCKET.fullmatch(bucket) or is_strange:
        raise ConfigError(
            f"not the place of {of}; keys go into the settings of the store's own client",
            value=without_keys(text),
            form=FORM,
        )
    return BucketPlace(bucket, f"{prefix}/" if prefix else "", scheme=SCHEMES[scheme])


def without_keys(place: str) -> str:
    """A place as it may be shown: who writes keys before a bucket's name, as Hadoop once had it,
    must not find them in a log.
    """
    before, at, bucket = place.rpartition("@")
    return f"{before.partition('://')[0]}://...@{bucket}" if at else place
