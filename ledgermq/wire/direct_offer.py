"""Offer of a direct connection: what two members tell one another before one of them dials.

Layout, little-endian (docs/formats/peer-protocol.md):

    offset  size  field
    0       4     magic ``LMQD``
    4       1     version
    5       1     kind: 1 offer, of who will dial; 2 invitation, of who listens
    6       2     port, of an invitation
    8       -     certificate of the sender, DER

It is the one part behind the preamble of a message between members. The certificate is that of the
sender's present life: whoever has it from a connection that was let in believes no other one.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError

OFFER_MAGIC = b"LMQD"

_VERSION = 1
_HEAD = Struct("<4sBBH")
CERTIFICATE_SIZE_MAX = 4_096


class OfferKind(IntEnum):
    """Which of the two steps it is."""

    OFFER = 1
    INVITATION = 2


class DirectOffer(NamedTuple):
    """One of the two steps; ``port`` is 0 in the first."""

    kind: OfferKind
    port: int
    certificate: bytes


def encode_offer(offer: DirectOffer) -> bytes:
    """The part's bytes."""
    assert 0 < len(offer.certificate) <= CERTIFICATE_SIZE_MAX, len(offer.certificate)
    return _HEAD.pack(OFFER_MAGIC, _VERSION, offer.kind, offer.port) + offer.certificate


def decode_offer(part: bytes) -> DirectOffer:
    """What the part says.

    Raises:
        ProtocolError: it is no offer of this version, or its certificate is too large.
    """
    if len(part) <= _HEAD.size:
        raise ProtocolError("offer of a direct connection too short", size=len(part))
    magic, version, kind, port = _HEAD.unpack_from(part)
    if magic != OFFER_MAGIC or version != _VERSION or kind not in tuple(OfferKind):
        raise ProtocolError("no offer of a direct connection", version=version, kind=kind)
    certificate = part[_HEAD.size :]
    if len(certificate) > CERTIFICATE_SIZE_MAX:
        raise ProtocolError(
            "certificate too large", size=len(certificate), limit=CERTIFICATE_SIZE_MAX
        )
    return DirectOffer(OfferKind(kind), port, certificate)
