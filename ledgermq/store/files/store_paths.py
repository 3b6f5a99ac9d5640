"""Paths of the store, by the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.store.log_family import LogFamily, LogFolder
from ledgermq.store.state_mark import NAME as STATE_MARK


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Files and folders below ``store.path_root_dir``; ``None`` where the log has no such thing."""

    root: Path
    data: Path
    index: Path | None
    current_term: Path | None
    dledger_checkpoint: Path | None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The paths for the configured kind of log."""
        root = settings.store.path_root_dir
        if settings.store.log is LogKind.COMMITLOG:
            return cls(root, root / "commitlog", None, None, None)
        dledger = root / f"dledger-{settings.node.self_id}"
        return cls(
            root,
            dledger / "data",
            dledger / "index",
            dledger / "currterm",
            dledger / "checkpoint",
        )

    @property
    def log(self) -> LogFamily:
        """The log's files, behind those of the plain log that it may have grown from."""
        if self.old is None:
            return LogFamily(LogFolder(self.data, 0))
        return LogFamily(LogFolder(self.old, 0), LogFolder(self.data, ENTRY_HEADER_SIZE))

    @property
    def old(self) -> Path | None:
        """The plain log that a DLedger log may go on from; None where the log is the plain one."""
        return None if self.index is None else self.root / "commitlog"

    @property
    def own(self) -> Path:
        """What is ours alone; RocketMQ ignores it."""
        return self.root / "ledgermq"

    @property
    def term(self) -> Path:
        """Term and vote."""
        return self.own / "term"

    @property
    def witness(self) -> Path:
        """Term, vote and the entry that is known, of a witness without bodies, which has no log."""
        return self.own / "witness"

    @property
    def told_group(self) -> Path:
        """Members and level that a witness without bodies was told of last."""
        return self.own / "told-group"

    @property
    def identity(self) -> Path:
        """Which disk this is, for the other members."""
        return self.own / "identity"

    @property
    def members(self) -> Path:
        """Where in the log the memberships are."""
        return self.own / "members"

    @property
    def state_mark(self) -> Path:
        """Where in the log the last snapshot of the broker's tables begins."""
        return self.own / STATE_MARK

    @property
    def log_checkpoint(self) -> Path:
        """Our checkpoint of the log."""
        return self.own / "log-checkpoint"

    @property
    def dispatch_checkpoint(self) -> Path:
        """Our checkpoint of dispatch."""
        return self.own / "dispatch-checkpoint"

    @property
    def reserve(self) -> Path:
        """Blocks for small files on a full disk (``store/files/disk_space.py``)."""
        return self.own / "reserve"

    @property
    def cold_cache(self) -> Path:
        """What was read of sealed pieces, unless the settings have another folder for it."""
        return self.own / "cold"

    @property
    def index_files(self) -> Path:
        """The Index."""
        return self.root / "index"

    @property
    def consume_queues(self) -> Path:
        """The ConsumeQueues."""
        return self.root / "consumequeue"

    @property
    def topics(self) -> Path:
        """RocketMQ's topic table."""
        return self.root / "config" / "topics.json"
