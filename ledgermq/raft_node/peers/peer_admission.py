"""Admission of peers: the rules that a preamble has to meet, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgermq.members.peer_identity import KnownPeers, cluster_id, take_identity
from ledgermq.model.config.settings import Settings
from ledgermq.model.features import LEVEL, version_of
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import members
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.recovery.log_scan import load_files
from ledgermq.store.recovery.recovery import COMMIT_LOG_FILE_SIZE
from ledgermq.wire.peer_preamble import (
    VERSION,
    AgreedSettings,
    Preamble,
    decode_addresses,
    decode_preamble,
    encode_preamble,
)

_SETTING_NAMES = (
    "store.log",
    "ack.mode",
    "store.mapped_file_size_commit_log",
    "store.max_message_size",
)
"""Names of the settings that the fields of ``AgreedSettings`` hold, in their order."""


class PeerVerdict(NamedTuple):
    """Who sends, and why it is refused; an empty reason: it is let in.

    Attributes:
        level: the feature level that it knows; None where it is of another group, has the key of
            another member, or speaks another version.
    """

    node: NodeId
    reason: str
    level: int | None


class Admission:
    """What this node says of itself, and asks of the others."""

    def __init__(self, settings: Settings) -> None:
        """Read, or make, what the store knows of itself and of the peers.

        Raises:
            ConfigError: the store belongs to another group or member.
            CorruptLogError: the log's files, the identity or the list of peers cannot be trusted.
            StorageError: the operating system refused.
        """
        own = StorePaths.of(settings).own
        make_directories(own)
        self.known = KnownPeers(own / "peers")
        self._node = NodeId(settings.node.self_id)
        self._members: tuple[NodeId, ...] = members(settings)
        self._cluster = cluster_id(settings.node)
        self._identity = take_identity(own / "identity", settings.node)
        self._settings = agreed_settings(settings)
        self._level_needed = 0

    def set_members(self, members_: Iterable[NodeId]) -> None:
        """Let these in and no others."""
        self._members = tuple(sorted(members_))

    def need_level(self, level: int) -> None:
        """Let in only who knows this feature level, which is in force."""
        self._level_needed = level

    def preamble_to(self, peer: NodeId) -> bytes:
        """What every message to ``peer`` begins with."""
        return encode_preamble(
            Preamble(self._node, peer, self._cluster, self._identity, self._settings, LEVEL)
        )

    def judge(self, part: bytes, *, key_owner: NodeId | None) -> PeerVerdict:
        """Whether the sender of this preamble is let in; one that was never seen is remembered.

        Args:
            key_owner: whose key the connection was made with; None without CURVE.

        Raises:
            ProtocolError: it is no preamble, so nobody can be told.
            StorageError: a new peer could not be remembered.
        """
        sender = decode_addresses(part)
        node = sender.source
        if sender.version != VERSION:
            return PeerVerdict(
                node,
                f"{node} speaks version {sender.version} of the protocol between members,"
                f" {self._node} speaks version {VERSION}: update the older one",
                None,
            )
        preamble = decode_preamble(part)
        # The disk comes last: an unknown one is remembered, but of nobody who is refused anyway.
        reason = (
            self._stranger(preamble)
            or self._wrong_key(node, key_owner)
            or self._other_settings(preamble)
            or self._older_member(preamble)
            or self._other_disk(preamble)
        )
        is_ours = preamble.cluster == self._cluster and key_owner in (None, node)
        return PeerVerdict(node, reason, preamble.level if is_ours else None)

    def _stranger(self, preamble: Preamble) -> str:
        node = preamble.source
        if preamble.cluster != self._cluster:
            return (
                f"{node} is of another group than {self._node}: node.broker_cluster_name or"
                f" node.group differs (cluster id {preamble.cluster.hex()} and"
                f" {self._cluster.hex()})"
            )
        if node not in self._members:
            return f"{node} is no member of the group of {self._node} ({', '.join(self._members)})"
        if node == self._node:
            return f"two nodes call themselves {node}: node.self_id must differ"
        if preamble.target != self._node:
            return (
                f"{node} means {preamble.target}, but reached {self._node}:"
                " node.peers has a wrong address"
            )
        return ""

    def _wrong_key(self, node: NodeId, key_owner: NodeId | None) -> str:
        if key_owner in (None, node):
            return ""
        return f"a node with the key of {key_owner} calls itself {node}: raft.keys_dir is another's"

    def _other_settings(self, preamble: Preamble) -> str:
        for name, theirs, ours in zip(
            _SETTING_NAMES, preamble.settings, self._settings, strict=True
        ):
            if theirs != ours:
                return f"{name} is {theirs} on {preamble.source}, but {ours} on {self._node}"
        return ""

    def _older_member(self, preamble: Preamble) -> str:
        return self.too_old(preamble.source, preamble.level)

    def too_old(self, node: NodeId, level: int) -> str:
        """Why ``node``, which knows ``level``, cannot be a member; empty: it is not too old."""
        needed = self._level_needed
        if level >= needed:
            return ""
        return (
            f"{node} knows feature level {level}, but level {needed} is in"
            f" force in the group: it needs version {version_of(needed)} or newer"
        )

    def _other_disk(self, preamble: Preamble) -> str:
        node, identity = preamble.source, preamble.identity
        known = self.known.get(node)
        if known == identity:
            return ""
        if identity == self._identity:
            return f"{node} runs on a copy of the disk of {self._node}"
        owner = self.known.owner(identity)
        if owner is not None:
            return f"{node} runs on a copy of the disk of {owner}"
        # Behind the two above: a copy of a disk must not be remembered as this node's own.
        if known is None:
            self.known.remember(node, identity)
            return ""
        return (
            f"{node} has another disk than {self._node} knows it by (identity {identity.hex()[:8]},"
            f" known {known.hex()[:8]}): if it was given an empty one on purpose, run"
            f" `ledgermq raft forget {node}` on {self._node}"
        )


def agreed_settings(settings: Settings) -> AgreedSettings:
    """The settings that all members must have alike, the file size being that of the files there.

    Raises:
        CorruptLogError: the files have not all one size.
    """
    files = load_files(
        StorePaths.of(settings).data,
        file_size=settings.store.mapped_file_size_commit_log,
        default_size=COMMIT_LOG_FILE_SIZE,
    )
    return AgreedSettings(
        settings.store.log, settings.ack.mode, files.file_size, settings.store.max_message_size
    )
