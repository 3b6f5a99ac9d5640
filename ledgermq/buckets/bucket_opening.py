"""Opening a bucket: the client of the store that a place is of, imported when it is asked for."""

from __future__ import annotations

from ledgermq.buckets.bucket import Bucket
from ledgermq.buckets.bucket_address import BucketPlace


def open_bucket(place: BucketPlace) -> Bucket:
    """The bucket of the place; nothing is asked yet.

    Raises:
        ConfigError: its store's client is not installed, or does not take the place.
    """
    # Each with the client of its store, which is an extra of its own and takes its time.
    if place.scheme == "gs":
        from ledgermq.buckets.google_bucket import GoogleBucket

        return GoogleBucket(place)
    if place.scheme == "abfss":
        from ledgermq.buckets.azure_bucket import AzureBucket

        return AzureBucket(place)
    from ledgermq.buckets.amazon_bucket import S3Bucket

    return S3Bucket(place)
