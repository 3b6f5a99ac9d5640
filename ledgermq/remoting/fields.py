"""Typed fields of a command, parsed by Java's rules, and the signature of a request over them.

The signature is that of RocketMQ's ACL (``AclUtils``, ``AclSigner``). What is signed are the values
of all fields but the signature, in the order of their names (UTF-16 code units; field names are
ASCII), followed by the body. Whether ``_UNIQUE_KEY_QUERY`` is among them, which says what a key is
that a message is looked for by, depends on the client: Java's signs it from 4.9.4 on, and left it
out before. RocketMQ 4.9.4 itself knows the older way alone, and so refuses its own client; here
both are right.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1

from ledgermq.model.errors import ProtocolError

Fields = Mapping[str, str]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"

_SIGNED_BY_SOME = "_UNIQUE_KEY_QUERY"


def text(fields: Fields, name: str) -> str:
    """A text that must be there; it may be empty.

    Raises:
        ProtocolError: it is missing.
    """
    value = fields.get(name)
    if value is None:
        raise ProtocolError("field is missing", field=name)
    return value


def int32(fields: Fields, name: str, default: int | None = None) -> int:
    """A number of Java's ``int``; without a default it must be there.

    Raises:
        ProtocolError: it is missing, no number, or too large.
    """
    value = fields.get(name)
    if value is not None and len(value) < 10 and value.isdecimal() and value.isascii():
        return int(value)
    return _integer(fields, name, default, INT32_MAX)


def int64(fields: Fields, name: str, default: int | None = None) -> int:
    """A number of Java's ``long``; see ``int32``."""
    value = fields.get(name)
    if value is not None and len(value) < 19 and value.isdecimal() and value.isascii():
        return int(value)
    return _integer(fields, name, default, INT64_MAX)


def flag(fields: Fields, name: str) -> bool:
    """True when the text is ``true``, in any case of letters (``Boolean.parseBoolean``)."""
    value = fields.get(name)
    return value is not None and value.lower() == "true"


def _integer(fields: Fields, name: str, default: int | None, limit: int) -> int:
    value = fields.get(name)
    if value is None:
        if default is None:
            raise ProtocolError("field is missing", field=name)
        return default
    digits = value[1:] if value[:1] in ("-", "+") else value
    # int() alone would take blanks, underscores and the digits of other scripts.
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(limit))):
        raise ProtocolError("field is not a number", field=name, value=value[:64], limit=limit)
    number = int(value)
    if not -limit - 1 <= number <= limit:
        raise ProtocolError("field is too large", field=name, value=value, limit=limit)
    return number


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
