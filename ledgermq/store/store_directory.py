"""Detection of a store directory's kind and folders from the directory alone.

found                        the store is
commitlog/                   a plain CommitLog
dledger-ID/data/             a DLedger log of the node ID
both                         a plain store that was upgraded: the log goes on where the first
                             DLedger file begins (``DLedgerCommitLog``, dividedCommitlogOffset)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import ConfigError, refused_as
from ledgermq.model.ids import NodeId, Position
from ledgermq.store.files.file_names import queue_files
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.log_family import LogFamily, LogFolder
from ledgermq.store.recovery import log_checkpoint

_DLEDGER_PREFIX = "dledger-"


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """One store directory; a size is ``None`` where there is no file to tell it.

    Attributes:
        log: what the log goes on as.
        commit_log: folder of a plain CommitLog's files, also of one that was upgraded.
        dledger: folder of the DLedger log.
        self_id: whose DLedger log it is.
        divided: first position of the DLedger part of an upgraded log.
        log_file_size: bytes of a log file.
        queue_file_size: bytes of a queue file.
        aborted: the store is open, or was not closed.
    """

    root: Path
    log: LogKind
    commit_log: Path | None
    dledger: Path | None
    self_id: NodeId | None
    divided: Position | None
    log_file_size: int | None
    queue_file_size: int | None
    aborted: bool

    @property
    def log_family(self) -> LogFamily:
        """The log's files."""
        return _family(self.commit_log, self.dledger)

    @property
    def consume_queues(self) -> Path:
        """The ConsumeQueues, one folder a topic."""
        return self.root / "consumequeue"

    @property
    def index(self) -> Path:
        """The index files of keys."""
        return self.root / "index"


def open_directory(root: Path, *, self_id: str | None = None) -> StoreDirectory:
    """Find out what ``root`` holds.

    Args:
        self_id: which DLedger log to take where there are several.

    Raises:
        ConfigError: no store, or several DLedger logs.
        CorruptLogError: log files of different sizes, or what is no log file among them.
        StorageError: the directory cannot be read.
    """
    names = names_in(root)
    commit_log = root / "commitlog" if "commitlog" in names else None
    dledger = dledger_folder(root, names, self_id)
    if dledger is None and commit_log is None:
        raise ConfigError(
            "neither commitlog/ nor dledger-*/ in it: not a store directory", directory=str(root)
        )
    expected = _checkpointed_size(root)
    old = MappedFiles(commit_log) if commit_log is not None else None
    new = MappedFiles(dledger / "data", file_size=expected) if dledger is not None else None
    if old is not None and not old.starts:
        old = None
    divided = new.first if old is not None and new is not None and new.starts else None
    plain = dledger is None
    sizes = [files.file_size for files in (new, old) if files is not None and files.starts]
    return StoreDirectory(
        root=root,
        log=LogKind.COMMITLOG if plain else LogKind.DLEDGER,
        commit_log=commit_log if plain or old is not None else None,
        dledger=dledger,
        self_id=NodeId(dledger.name.removeprefix(_DLEDGER_PREFIX)) if dledger else None,
        divided=None if divided is None else Position(divided),
        log_file_size=expected or (sizes[0] if sizes else None),
        queue_file_size=_queue_file_size(root / "consumequeue"),
        aborted="abort" in names,
    )


def log_in(root: Path, names: set[str], self_id: str | None) -> LogFamily:
    """The log of the store in ``root``, a folder that holds ``names``; its files are not looked at.

    Raises:
        ConfigError: as ``dledger_folder``.
    """
    plain = root / "commitlog" if "commitlog" in names else None
    return _family(plain, dledger_folder(root, names, self_id))


def _family(plain: Path | None, dledger: Path | None) -> LogFamily:
    old = [] if plain is None else [LogFolder(plain, 0)]
    new = [] if dledger is None else [LogFolder(dledger / "data", HEADER_SIZE)]
    return LogFamily(*old, *new)


def names_in(root: Path) -> set[str]:
    """Names of what stands in ``root``.

    Raises:
        StorageError: the directory cannot be read.
    """
    with refused_as("store directory not read", directory=root):
        return {path.name for path in root.iterdir()}


def dledger_folder(root: Path, names: set[str], self_id: str | None) -> Path | None:
    """Folder of the DLedger log among ``names``, None without one.

    Raises:
        ConfigError: there are several and ``self_id`` names none, or it names another.
    """
    if self_id is not None:
        name = _DLEDGER_PREFIX + self_id
        if name not in names:
            raise ConfigError("no DLedger log of that node", directory=str(root / name))
        return root / name
    found = sorted(name for name in names if name.startswith(_DLEDGER_PREFIX))
    if len(found) > 1:
        raise ConfigError(
            "DLedger logs of several nodes: say which one", directory=str(root), found=found
        )
    return root / found[0] if found else None


def _checkpointed_size(root: Path) -> int | None:
    """What our own checkpoint says of the size of log files; RocketMQ's stores have none."""
    checkpoint = log_checkpoint.read(root / "ledgermq" / "log-checkpoint")
    return checkpoint.file_size if checkpoint is not None else None


def _queue_file_size(consume_queues: Path) -> int | None:
    """Size of the first queue file there is; every reader of a queue compares its own with it."""
    for path in queue_files(consume_queues):
        size = path.stat().st_size
        if size:
            return size
    return None
