"""The 16-byte header of every message between a client and a node.

Layout, little-endian (docs/formats/client-protocol.md):

    offset  size  field
    0       3     magic ``LMQ``
    3       1     version, 1; a higher one in what a session of that version has in another form
    4       1     kind
    5       1     flags
    6       2     reserved, 0
    8       8     request id, chosen by the client, repeated in the answer
"""

from __future__ import annotations

import sys
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError

MAGIC = b"LMQ"
VERSION = 5
"""The newest version spoken here; a session has the lower one of its two sides."""

VERSION_MIN = 1
_HEADER = Struct("<3sBBBHQ")
HEADER_SIZE = _HEADER.size

assert HEADER_SIZE == 16
assert sys.byteorder == "little"  # the tables of frames are read as the machine's own integers

FLAG_RETRY = 1
"""SEND: some of the records may be stored already."""

FLAG_RESUME = 2
"""SEND: the client knows what was refused before, and sends it again from this frame on."""

FLAG_ENTRY_HEADERS = 4
"""PULL: the headers of the messages' entries are wanted, too; a node of before does not know it."""


class Kind(IntEnum):
    """What a message is; numbers are never reused."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    GOODBYE = 4
    ROLE = 5
    SEND = 10
    SENT = 11
    CALL = 20
    RESULT = 21
    PULL = 30
    PULLED = 31
    QUERY = 40
    QUERIED = 41


_KINDS = {int(kind): kind for kind in Kind}


class Header(NamedTuple):
    """Header of one message."""

    kind: Kind
    flags: int
    request_id: int
    version: int = VERSION_MIN


def encode_header(
    kind: Kind, request_id: int, flags: int = 0, *, version: int = VERSION_MIN
) -> bytes:
    """The header's bytes.

    Args:
        version: of the message's form; only a session of that version may have it.
    """
    return _HEADER.pack(MAGIC, version, kind, flags, 0, request_id)


def decode_header(message: bytes | memoryview) -> Header:
    """The header at the beginning of ``message``.

    Raises:
        ProtocolError: it is too short, of another protocol or version, or of no known kind.
    """
    if len(message) < HEADER_SIZE:
        raise ProtocolError("message shorter than a header", size=len(message), minimum=HEADER_SIZE)
    magic, version, kind, flags, _, request_id = _HEADER.unpack_from(message)
    if magic != MAGIC:
        raise ProtocolError("message of another protocol", magic=magic.hex(), expected=MAGIC.hex())
    if not VERSION_MIN <= version <= VERSION:
        raise ProtocolError("protocol version not spoken here", version=version, expected=VERSION)
    known = _KINDS.get(kind)
    if known is None:
        raise ProtocolError("unknown kind of message", kind=kind)
    return Header(known, flags, request_id, version)
