"""Ed25519 signatures (RFC 8032): made, and checked whatever key and signature come from outside.

A node without clusters and receipts, and who has none to check, need not have the library: it is
imported where something is signed or checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SECRET_SIZE = 32
PUBLIC_SIZE = 32
SIGNATURE_SIZE = 64


def signing_key(seed: bytes) -> Ed25519PrivateKey:
    """The key that ``seed`` stands for, ``SECRET_SIZE`` bytes that nobody can guess."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    assert len(seed) == SECRET_SIZE, len(seed)
    return Ed25519PrivateKey.from_private_bytes(seed)


def has_signed(public: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the owner of ``public`` has signed ``content``.

    Key and signature may be of any size.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
