"""Peer preamble: the first part of every message between members, with sender and settings.

Layout, little-endian (docs/formats/peer-protocol.md):

    offset  size  field
    0       4     magic ``LMQP``
    4       1     version of the protocol
    5       1     kind of log: 1 dledger, 2 commitlog
    6       1     acknowledgement: 1 majority-fsync, 2 majority-memory, 3 lossy-leader
    7       1     highest feature level that the sender knows (``model/features.py``)
    8       16    id of the sender, UTF-8, zero-padded
    24      16    id of the node that it is meant for
    40      16    cluster id
    56      16    identity of the sender's disk
    72      8     size of a log file in bytes
    80      8     largest body of a message in bytes

Magic, version and both ids stand in the same place in every version, so that a node can tell one of
another version why it is refused. A member sends one and the same preamble to a peer as long as it
runs: who receives it decodes it once, and compares bytes from then on.

A refusal is the answer, a message of one part: magic ``LMQR``, version, 3 bytes reserved, then the
reason as UTF-8.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ledgermq.model.config.settings import AckMode, LogKind
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NodeId

VERSION = 1
NODE_ID_SIZE_MAX = 16
REASON_SIZE_MAX = 512

_MAGIC = b"LMQP"
_ADDRESSES = Struct("<4sBBBB16s16s")
_REST = Struct("<16s16sqq")
SIZE = _ADDRESSES.size + _REST.size

_REFUSAL_MAGIC = b"LMQR"
_REFUSAL = Struct("<4sB3x")

assert SIZE == 88

_LOG_CODES = {LogKind.DLEDGER: 1, LogKind.COMMITLOG: 2}
_ACK_CODES = {AckMode.MAJORITY_FSYNC: 1, AckMode.MAJORITY_MEMORY: 2, AckMode.LOSSY_LEADER: 3}
_LOG_KINDS = {code: kind for kind, code in _LOG_CODES.items()}
_ACK_MODES = {code: mode for mode, code in _ACK_CODES.items()}


class AgreedSettings(NamedTuple):
    """What must be equal on all members, or one could not keep what another one sends."""

    log: LogKind
    ack: AckMode
    log_file_size: int
    max_message_size: int


class Addresses(NamedTuple):
    """What every version of the preamble begins with."""

    version: int
    source: NodeId
    target: NodeId


class Preamble(NamedTuple):
    """A whole preamble of our version.

    Attributes:
        level: the highest feature level that the sender knows; 0.1.0 always says 0.
    """

    source: NodeId
    target: NodeId
    cluster: bytes
    identity: bytes
    settings: AgreedSettings
    level: int


def encode_preamble(preamble: Preamble, *, version: int = VERSION) -> bytes:
    """The preamble's bytes."""
    source, target = preamble.source.encode(), preamble.target.encode()
    assert max(len(source), len(target)) <= NODE_ID_SIZE_MAX, preamble
    assert len(preamble.cluster) == len(preamble.identity) == 16, preamble
    agreed = preamble.settings
    return _ADDRESSES.pack(
        _MAGIC,
        version,
        _LOG_CODES[agreed.log],
        _ACK_CODES[agreed.ack],
        preamble.level,
        source,
        target,
    ) + _REST.pack(
        preamble.cluster, preamble.identity, agreed.log_file_size, agreed.max_message_size
    )


def decode_addresses(part: bytes) -> Addresses:
    """Who sends to whom, in which version; the version may be one that is not spoken here.

    Raises:
        ProtocolError: this is no preamble of any version.
    """
    if len(part) < _ADDRESSES.size:
        raise ProtocolError("shorter than a preamble", size=len(part), minimum=_ADDRESSES.size)
    magic, version, _log, _ack, _level, source, target = _ADDRESSES.unpack_from(part)
    if magic != _MAGIC:
        raise ProtocolError("message of another protocol", magic=magic.hex(), expected="LMQP")
    return Addresses(version, _node_id(source), _node_id(target))


def decode_preamble(part: bytes) -> Preamble:
    """The preamble.

    Raises:
        ProtocolError: it is of another protocol or version, or not whole.
    """
    addresses = decode_addresses(part)
    if addresses.version != VERSION:
        raise ProtocolError("protocol version", version=addresses.version, expected=VERSION)
    if len(part) != SIZE:
        raise ProtocolError("preamble of a wrong size", size=len(part), expected=SIZE)
    log, ack = part[5], part[6]
    if log not in _LOG_KINDS or ack not in _ACK_MODES:
        raise ProtocolError("preamble with an unknown log or acknowledgement", log=log, ack=ack)
    cluster, identity, file_size, message_size = _REST.unpack_from(part, _ADDRESSES.size)
    settings = AgreedSettings(_LOG_KINDS[log], _ACK_MODES[ack], file_size, message_size)
    return Preamble(addresses.source, addresses.target, cluster, identity, settings, part[7])


def encode_refusal(reason: str) -> bytes:
    """The answer to a sender that is not let in; a long reason is cut."""
    return _REFUSAL.pack(_REFUSAL_MAGIC, VERSION) + reason.encode()[:REASON_SIZE_MAX]


def decode_refusal(part: bytes) -> str:
    """The reason, in one line of printable characters; refusals of other versions can be read, too.

    Raises:
        ProtocolError: this is no refusal.
    """
    if len(part) < _REFUSAL.size or part[:4] != _REFUSAL_MAGIC:
        raise ProtocolError("answer that is no refusal", size=len(part), magic=part[:4].hex())
    text = part[_REFUSAL.size : _REFUSAL.size + REASON_SIZE_MAX].decode(errors="replace")
    return "".join(character if character.isprintable() else "?" for character in text)


def _node_id(padded: bytes) -> NodeId:
    text = padded.rstrip(b"\0")
    # What is no name of a node must not reach a log as it is.
    if not (text.isascii() and text.isalnum()):
        raise ProtocolError("not the id of a node", node=text.hex())
    return NodeId(text.decode())
