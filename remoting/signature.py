"""Request signatures, as RocketMQ's ACL has them (``AclUtils``, ``AclSigner``).

What is signed are the values of all fields but the signature, in the order of their names (UTF-16
code units; field names are ASCII), followed by the body. A field ``_UNIQUE_KEY_QUERY`` is left out,
which clients add afterwards.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - a field's name

_NOT_SIGNED = frozenset((SIGNATURE, "_UNIQUE_KEY_QUERY"))


def signature(fields: Mapping[str, str], body: bytes | memoryview, secret: str) -> str:
    """The signature that a request of these fields must have."""
    names = sorted(name for name in fields if name not in _NOT_SIGNED)
    digest = hmac.new(secret.encode(), digestmod=sha1)
    digest.update("".join(fields[name] for name in names).encode(errors="replace"))
    digest.update(body)
    return b64encode(digest.digest()).decode("ascii")


def is_signed(fields: Mapping[str, str], body: bytes | memoryview, secret: str) -> bool:
    """Whether the request has the right signature; takes the same time for all wrong ones."""
    expected = signature(fields, body, secret)
    return hmac.compare_digest(
        expected.encode(), fields.get(SIGNATURE, "").encode(errors="replace")
    )
