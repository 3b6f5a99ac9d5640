"""Request signatures, as RocketMQ's ACL has them (``AclUtils``, ``AclSigner``).

What is signed are the values of all fields but the signature, in the order of their names (UTF-16
code units; field names are ASCII), followed by the body. Whether ``_UNIQUE_KEY_QUERY`` is among
them, which says what a key is that a message is looked for by, depends on the client: Java's signs
it from 4.9.4 on, and left it out before. RocketMQ 4.9.4 itself knows the older way alone, and so
refuses its own client; here both are right.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"

_SIGNED_BY_SOME = "_UNIQUE_KEY_QUERY"


def signature(fields: Mapping[str, str], body: bytes | memoryview, secret: str) -> str:
    """The signature that a request of these fields must have."""
    names = sorted(name for name in fields if name != SIGNATURE)
    digest = hmac.new(secret.encode(), digestmod=sha1)
    digest.update("".join(fields[name] for name in names).encode(errors="replace"))
    digest.update(body)
    return b64encode(digest.digest()).decode("ascii")


def is_signed(fields: Mapping[str, str], body: bytes | memoryview, secret: str) -> bool:
    """Whether the request has the right signature; takes the same time for all wrong ones."""
    given = fields.get(SIGNATURE, "").encode(errors="replace")
    is_right = hmac.compare_digest(signature(fields, body, secret).encode(), given)
    if _SIGNED_BY_SOME not in fields:
        return is_right
    older = {name: text for name, text in fields.items() if name != _SIGNED_BY_SOME}
    return hmac.compare_digest(signature(older, body, secret).encode(), given) or is_right
