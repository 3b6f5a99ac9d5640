"""Signatures of a cluster's root and of its homes: Ed25519, each with a purpose."""

from __future__ import annotations

from ledgermq.formats.ed25519 import SIGNATURE_SIZE, has_signed, signing_key


class SigningKey:
    """The secret half of a key, in memory; ``public`` is the other, ``PUBLIC_SIZE`` bytes."""

    def __init__(self, secret: bytes) -> None:
        """Take it.

        Args:
            secret: ``SECRET_SIZE`` bytes that nobody can guess.
        """
        self._key = signing_key(secret)
        self.public = self._key.public_key().public_bytes_raw()

    def signed(self, purpose: bytes, content: bytes) -> bytes:
        """``content`` behind its signature.

        Args:
            purpose: kind of content, without a zero byte: what is signed as one is none of another.
        """
        return self._key.sign(purpose + b"\0" + content) + content


def signed_content(public: bytes, purpose: bytes, signed: bytes) -> bytes | None:
    """What stands behind the signature; None unless the owner of ``public`` has signed it so.

    ``public`` and ``signed`` may be of any size: keys come from outside, too.
    """
    signature, content = signed[:SIGNATURE_SIZE], signed[SIGNATURE_SIZE:]
    return content if has_signed(public, signature, purpose + b"\0" + content) else None
