"""Signatures of a cluster's root and of its homes: Ed25519 (RFC 8032), each with a purpose.

Their library is imported where something is signed or checked: a group of no cluster does neither.
"""

from __future__ import annotations

PUBLIC_SIZE = 32
SECRET_SIZE = 32
SIGNATURE_SIZE = 64


class SigningKey:
    """The secret half of a key, in memory; ``public`` is the other, ``PUBLIC_SIZE`` bytes."""

    def __init__(self, secret: bytes) -> None:
        """Take it.

        Args:
            secret: ``SECRET_SIZE`` bytes that nobody can guess.
        """
        # A node without clusters need not have the library.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        assert len(secret) == SECRET_SIZE, len(secret)
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
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
    # A node without clusters need not have the library.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(public) != PUBLIC_SIZE or len(signed) < SIGNATURE_SIZE:
        return None
    content = signed[SIGNATURE_SIZE:]
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signed[:SIGNATURE_SIZE], purpose + b"\0" + content)
    except (InvalidSignature, ValueError):
        return None
    return content
