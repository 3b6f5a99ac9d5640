"""Shipping frames: offers and slices of whole log files, between members.

The receiver asks, the leader answers; an offer alone comes unasked. Files have no names here, only
positions of the log: nobody can ask for, or send, anything else.

Layout, little-endian: kind u8, version u8, flags u8, 5 bytes reserved, term i64, then by kind:

    OFFER       begin i64, end i64, first index i64, last index i64, file size i64, then the
                memberships as the leader keeps them (``ROOT/ledgermq/members``)
    ASK         position i64, size i64
    SLICE       position i64, digest 32 bytes; its bytes are the next part
    ASK_DIGEST  position i64, size i64
    DIGEST      position i64, size i64, digest 32 bytes
    GONE        position i64
    ASK_ENDS    offset i64
    ENDS        offset i64, size i64, digest 32 bytes; bytes from the offset on are the next part

Flag 1 of an OFFER: the leader answers ASK_ENDS. Size and digest of ENDS are those of the whole
table of queue ends, as a member has it in ``ROOT/ledgermq/queue-ends``.

Kinds begin at 32, where those of ``raft/message_codec.py`` never are. Digests are BLAKE2b.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from ledgermq.formats.digest import DIGEST_SIZE
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term

VERSION = 1
KIND_MIN = 32
MEMBERS_SIZE_MAX = 1024 * 1024


class _Kind(IntEnum):
    OFFER = 32
    ASK = 33
    SLICE = 34
    ASK_DIGEST = 35
    DIGEST = 36
    GONE = 37
    ASK_ENDS = 38
    ENDS = 39


class Offer(NamedTuple):
    """The leader's log from its first entry up to a committed one.

    Attributes:
        begin: position of the first file.
        end: position behind the last entry, or where the file behind it begins.
        first, last: indexes of the first and of the last entry.
        file_size: bytes of a file; all but the last one are shipped whole.
        members: content of the file with the memberships of the log; may be empty.
        has_ends: whether the leader can be asked for the ends of its queues.
    """

    term: Term
    begin: Position
    end: Position
    first: Index
    last: Index
    file_size: int
    members: bytes = b""
    has_ends: bool = False


class Ask(NamedTuple):
    """Send ``size`` bytes at ``position``, which are in one file."""

    term: Term
    position: Position
    size: int


class Slice(NamedTuple):
    """Bytes at ``position``, beside this; ``digest`` is theirs."""

    term: Term
    position: Position
    digest: bytes


class AskDigest(NamedTuple):
    """What is the digest of the ``size`` bytes from ``position``, the beginning of a file, on?"""

    term: Term
    position: Position
    size: int


class Digest(NamedTuple):
    """Answer to ``AskDigest``."""

    term: Term
    position: Position
    size: int
    digest: bytes


class Gone(NamedTuple):
    """What was asked for at ``position`` is not offered, or not any more: wait for an offer."""

    term: Term
    position: Position


class AskEnds(NamedTuple):
    """Send the table of queue ends from byte ``offset`` on."""

    term: Term
    offset: int


class Ends(NamedTuple):
    """Bytes of the table from ``offset`` on, beside this; size and digest are the whole table's."""

    term: Term
    offset: int
    size: int
    digest: bytes


ShipFrame = Offer | Ask | Slice | AskDigest | Digest | Gone | AskEnds | Ends

_HEAD = Struct("<BBB5xq")
_HAS_ENDS = 1
_OFFER = Struct("<qqqqq")
_ASK = Struct("<qq")
_SLICE = Struct(f"<q{DIGEST_SIZE}s")
_DIGEST = Struct(f"<qq{DIGEST_SIZE}s")
_ONE = Struct("<q")


def is_ship_frame(part: memoryview | bytes) -> bool:
    """Whether ``part`` is to be decoded here, and not by the consensus."""
    return len(part) > 0 and part[0] >= KIND_MIN


def encode_ship_frame(frame: ShipFrame) -> bytes:
    """The bytes of ``frame``."""
    flags = 0
    match frame:
        case Offer():
            assert len(frame.members) <= MEMBERS_SIZE_MAX, len(frame.members)
            kind, body = _Kind.OFFER, _OFFER.pack(*frame[1:6]) + frame.members
            flags = _HAS_ENDS if frame.has_ends else 0
        case Ask():
            kind, body = _Kind.ASK, _ASK.pack(*frame[1:])
        case Slice():
            kind, body = _Kind.SLICE, _SLICE.pack(*frame[1:])
        case AskDigest():
            kind, body = _Kind.ASK_DIGEST, _ASK.pack(*frame[1:])
        case Digest():
            kind, body = _Kind.DIGEST, _DIGEST.pack(*frame[1:])
        case Gone():
            kind, body = _Kind.GONE, _ONE.pack(frame.position)
        case AskEnds():
            kind, body = _Kind.ASK_ENDS, _ONE.pack(frame.offset)
        case Ends():
            kind, body = _Kind.ENDS, _DIGEST.pack(*frame[1:])
    return _HEAD.pack(kind, VERSION, flags, frame.term) + body


def decode_ship_frame(part: memoryview | bytes) -> ShipFrame:
    """The frame in ``part``.

    Raises:
        ProtocolError: it is none of this version, or a number in it cannot be.
    """
    try:
        kind, version, flags, term = _HEAD.unpack_from(part)
        if version != VERSION:
            raise ProtocolError("ship frame of another version", version=version, ours=VERSION)
        frame = _decode(kind, flags, Term(term), part)
    except error as problem:
        raise ProtocolError("ship frame cut short", size=len(part)) from problem
    if any(isinstance(value, int) and value < 0 for value in frame):
        raise ProtocolError("ship frame with a number below 0", frame=frame)
    return frame


def _decode(kind: int, flags: int, term: Term, part: memoryview | bytes) -> ShipFrame:
    at = _HEAD.size
    match kind:
        case _Kind.OFFER:
            begin, end, first, last, file_size = _OFFER.unpack_from(part, at)
            members = bytes(part[at + _OFFER.size :])
            if len(members) > MEMBERS_SIZE_MAX:
                raise ProtocolError(
                    "memberships of an offer too large", size=len(members), limit=MEMBERS_SIZE_MAX
                )
            log = Position(begin), Position(end), Index(first), Index(last)
            return Offer(term, *log, file_size, members, bool(flags & _HAS_ENDS))
        case _Kind.ASK | _Kind.ASK_DIGEST:
            position, size = _ASK.unpack_from(part, at)
            made = Ask if kind == _Kind.ASK else AskDigest
            return made(term, Position(position), size)
        case _Kind.SLICE:
            position, digest = _SLICE.unpack_from(part, at)
            return Slice(term, Position(position), digest)
        case _Kind.DIGEST | _Kind.ENDS:
            position, size, digest = _DIGEST.unpack_from(part, at)
            if kind == _Kind.ENDS:
                return Ends(term, position, size, digest)
            return Digest(term, Position(position), size, digest)
        case _Kind.GONE | _Kind.ASK_ENDS:
            position = _ONE.unpack_from(part, at)[0]
            return Gone(term, Position(position)) if kind == _Kind.GONE else AskEnds(term, position)
    raise ProtocolError("unknown kind of ship frame", kind=kind)
