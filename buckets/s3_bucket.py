"""Bucket of a place, of whatever store, under the name that backup streams ask for one."""

from __future__ import annotations

from ledgermq.buckets.bucket import NO_CONDITIONS
from ledgermq.buckets.bucket_opening import open_bucket

__all__ = ["NO_CONDITIONS", "S3Bucket"]

S3Bucket = open_bucket
