"""Keys of answers that are no JSON alone."""

from __future__ import annotations

PAYLOAD = "payload"
"""Bytes behind the JSON of a RESULT, in a part of their own."""
