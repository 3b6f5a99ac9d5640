"""Identity of a store, and those that are known of the other members.

A node that has lost its log, or runs on a copy of another one's, must not vote: it would forget
what it has promised. So each store has an identity, drawn once, and each member trusts the first
identity that it sees of another one, and no other later.

Layout of ``ROOT/ledgermq/identity``, little-endian:

    offset  size  field
    0       4     magic ``LMQI``
    4       4     version, 1
    8       16    cluster id
    24      16    identity, random
    40      16    node id, UTF-8, zero-padded
    56      4     CRC-32 of the bytes before

``ROOT/ledgermq/peers`` is text, one line a peer: node id, identity in hexadecimal, CRC-32 of both
(with the space between) in hexadecimal. Both files are replaced atomically, by the raft process
alone.
"""

from __future__ import annotations

import os
import re
import uuid
import zlib
from pathlib import Path
from struct import Struct

from ledgermq.formats.digest import CRC
from ledgermq.model.config.settings import NodeSection
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import NodeId
from ledgermq.store.files.small_file import read_file, replace_file

IDENTITY_SIZE = 16
_FRAME = Struct("<4sI16s16s16s")
_MAGIC = b"LMQI"
_VERSION = 1
_HEXADECIMAL = re.compile(f"[0-9a-f]{{{2 * IDENTITY_SIZE}}}")
_CLUSTERS = uuid.UUID("6a0f3c1e-7f52-5d0b-9d55-0f2c3a4b8e11")
"""Name space of our cluster ids; any constant will do, but it is never to change."""


def cluster_id(node: NodeSection) -> bytes:
    """Sixteen bytes that the members of a group share, and those of no other group have."""
    return uuid.uuid5(_CLUSTERS, f"{node.broker_cluster_name}\n{node.group}").bytes


def take_identity(path: Path, node: NodeSection) -> bytes:
    """The identity of this store's disk, drawn and made durable if there is none.

    Raises:
        ConfigError: the store belongs to another group, or to another member.
        CorruptLogError: the file is not whole.
        StorageError: the operating system refused.
    """
    cluster = cluster_id(node)
    content = read_file(path)
    if content is None:
        return draw_identity(path, cluster, NodeId(node.self_id))
    found_cluster, identity, found_node = _decode(path, content)
    if found_node != node.self_id:
        raise ConfigError(
            "the store belongs to another member of the group",
            file=str(path),
            found=found_node,
            setting="node.self_id",
            value=node.self_id,
        )
    if found_cluster != cluster:
        raise ConfigError(
            "the store belongs to another group: its cluster id is that of other names",
            file=str(path),
            settings="node.broker_cluster_name, node.group",
            values=(node.broker_cluster_name, node.group),
        )
    return identity


def draw_identity(path: Path, cluster: bytes, node: NodeId) -> bytes:
    """A new identity of a disk of ``node``, which is durable at ``path`` on return.

    Raises:
        StorageError: the operating system refused.
    """
    identity = os.urandom(IDENTITY_SIZE)
    body = _FRAME.pack(_MAGIC, _VERSION, cluster, identity, node.encode())
    replace_file(path, body + CRC.pack(zlib.crc32(body)))
    return identity


def identity_of(path: Path) -> tuple[bytes, bytes, str] | None:
    """Cluster id, identity and node id in the file at ``path``; None when there is none.

    Raises:
        CorruptLogError: the file is not whole.
        StorageError: the operating system refused.
    """
    content = read_file(path)
    return None if content is None else _decode(path, content)


class KnownPeers:
    """The identities that the other members had when they were first heard of.

    Invariant: what ``get`` returns is on disk.
    """

    def __init__(self, path: Path) -> None:
        """Read the file at ``path``, if it is there.

        Raises:
            CorruptLogError: a line is not whole; names file and line.
            StorageError: the operating system refused.
        """
        self._path = path
        self._identities = _decode_lines(path, read_file(path) or b"")

    def get(self, node: NodeId) -> bytes | None:
        """The identity of ``node``, None when it was never heard of."""
        return self._identities.get(node)

    def owner(self, identity: bytes) -> NodeId | None:
        """The node that is known to have ``identity``."""
        return next((node for node, known in self._identities.items() if known == identity), None)

    def remember(self, node: NodeId, identity: bytes) -> None:
        """Trust ``identity`` from now on; durable when this returns.

        Raises:
            StorageError: the operating system refused.
        """
        assert node not in self._identities, node
        self._write({**self._identities, node: identity})

    def forget(self, node: NodeId) -> bool:
        """Trust the next identity that ``node`` is seen with; false when none was known.

        For a node that was given an empty disk on purpose, and on all other members. Not while a
        raft process runs on this store, which has the file in memory: ask its ``PeerGroup``.

        Raises:
            StorageError: the operating system refused.
        """
        if node not in self._identities:
            return False
        self._write({name: known for name, known in self._identities.items() if name != node})
        return True

    def _write(self, identities: dict[NodeId, bytes]) -> None:
        lines = []
        for node, identity in sorted(identities.items()):
            text = f"{node} {identity.hex()}"
            lines.append(f"{text} {zlib.crc32(text.encode()):08x}\n")
        replace_file(self._path, "".join(lines).encode())
        self._identities = identities


def _decode(path: Path, content: bytes) -> tuple[bytes, bytes, str]:
    """Cluster id, identity, node id."""
    body = content[: _FRAME.size]
    is_whole = len(content) == _FRAME.size + CRC.size
    if not is_whole or CRC.unpack_from(content, _FRAME.size)[0] != zlib.crc32(body):
        raise CorruptLogError(
            "identity is not whole: when the log beside it is sound, remove the file, and have the"
            " other members forget this node (ledgermq raft forget)",
            file=str(path),
        )
    magic, version, cluster, identity, node = _FRAME.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        raise CorruptLogError(
            "identity of another format", file=str(path), magic=magic.hex(), version=version
        )
    return cluster, identity, node.rstrip(b"\0").decode(errors="replace")


def _decode_lines(path: Path, content: bytes) -> dict[NodeId, bytes]:
    identities: dict[NodeId, bytes] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        text, _, crc = line.rpartition(" ")
        node, _, identity = text.partition(" ")
        if (
            crc != f"{zlib.crc32(text.encode()):08x}"
            or not _HEXADECIMAL.fullmatch(identity)
            or node in identities
        ):
            raise CorruptLogError(
                "identity of a peer cannot be read: remove the line if the node's disk is the"
                " one it always had",
                file=str(path),
                line=number,
            )
        identities[NodeId(node)] = bytes.fromhex(identity)
    return identities
