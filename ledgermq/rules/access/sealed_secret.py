"""Sealed secrets of users: as they stand in the log, readable only with a key of the group.

    sealed:1:KEY-ID:BASE64(tag, text)

``text`` is the secret, with its length before it and zeros behind, so that its length does not
show, XORed with HMAC-SHA256(stream key, tag, counter); ``tag``, 16 bytes, is HMAC-SHA256(tag key,
user, padded secret). Both keys come from the group's by HMAC. The tag is computed from what it
protects (as in SIV, RFC 5297): the same secret of the same user is sealed alike, so there is no
chance to repeat a nonce, and a text that was moved to another user, or changed, does not open.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from itertools import count

from ledgermq.model.errors import ConfigError

KEY_SIZE = 32
PREFIX = "sealed:"
_HEAD = f"{PREFIX}1:"
_TAG_SIZE = 16
_BLOCK = 32
_LENGTH_SIZE = 2
SEALED_SIZE_MAX = 1_536
"""Characters of the sealed form of the longest secret, whose characters may have four bytes."""

PLAIN_SIZE_MAX = 158
"""Bytes of a secret that is sealed anew: of a longer one the sealed form has more than the 255
characters that members of versions before take. They would pass the user over, for good."""


def is_sealed(text: str) -> bool:
    """Whether that is a sealed secret, and not one that somebody signs with."""
    return text.startswith(PREFIX)


def key_id(key: bytes) -> str:
    """Tells keys apart, and nothing about them."""
    return _derived(key, b"id").hex()[:8]


def seal(key: bytes, user: str, secret: str) -> str:
    """The secret for the log.

    Args:
        key: of the group, ``KEY_SIZE`` bytes.
    """
    assert len(key) == KEY_SIZE, len(key)
    plain = secret.encode()
    plain = len(plain).to_bytes(_LENGTH_SIZE, "big") + plain
    plain += bytes(-len(plain) % _BLOCK)
    tag = _tag(key, user, plain)
    sealed = f"{_HEAD}{key_id(key)}:{base64.b64encode(tag + _crypt(key, tag, plain)).decode()}"
    assert len(sealed) <= SEALED_SIZE_MAX, len(sealed)
    return sealed


def open_sealed(keys: Sequence[bytes], user: str, sealed: str) -> str:
    """The secret that was sealed for ``user`` with one of ``keys``.

    Raises:
        ConfigError: it was sealed with another key, or is not what was sealed.
    """
    name, _, text = sealed.removeprefix(_HEAD).partition(":")
    key = next((one for one in keys if key_id(one) == name), None)
    if key is None or not sealed.startswith(_HEAD):
        raise ConfigError(
            "secret of the user is sealed with a key that this node does not have",
            user=user,
            key=name[:16],
            known=[key_id(one) for one in keys],
        )
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise _damaged(user) from error
    tag, plain = content[:_TAG_SIZE], _crypt(key, content[:_TAG_SIZE], content[_TAG_SIZE:])
    if not hmac.compare_digest(tag, _tag(key, user, plain)):
        raise _damaged(user)
    size = int.from_bytes(plain[:_LENGTH_SIZE], "big")
    return plain[_LENGTH_SIZE : _LENGTH_SIZE + size].decode()


def _damaged(user: str) -> ConfigError:
    return ConfigError("sealed secret of the user is not what was sealed", user=user)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, b"ledgermq user secret " + purpose, "sha256")


def _tag(key: bytes, user: str, plain: bytes) -> bytes:
    name = user.encode()
    told = len(name).to_bytes(_LENGTH_SIZE, "big") + name + plain
    return hmac.digest(_derived(key, b"tag"), told, "sha256")[:_TAG_SIZE]


def _crypt(key: bytes, tag: bytes, text: bytes) -> bytes:
    own, counter = _derived(key, b"stream"), count()
    stream = b"".join(
        hmac.digest(own, tag + next(counter).to_bytes(4, "big"), "sha256")
        for _ in range(0, len(text), _BLOCK)
    )
    return bytes(one ^ other for one, other in zip(text, stream, strict=False))
