"""Check of a store's directory against the settings; read-only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ledgermq.daemon.store_lock import holder_of
from ledgermq.formats.index_file import ITEMS_DEFAULT, SLOTS_DEFAULT, IndexLayout
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.process.control import check_path
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.store_kind import check_kind
from ledgermq.sessions.keys.peer_keys import load_keys
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.queues.queue_files import found_file_size
from ledgermq.store.recovery.log_scan import load_files


class FoundStore(NamedTuple):
    """What is in the directory; a size is ``None`` when there is no file to have it."""

    root: Path
    log: str
    log_files: int
    log_file_size: int | None
    queue_file_size: int | None
    index_file_size: int | None
    left_by_crash: bool

    @property
    def text(self) -> str:
        """The log that was found, in one sentence."""
        if not self.log_files:
            return f"no log yet; a {self.log} log will be made"
        crash = ", left by a crash" if self.left_by_crash else ""
        return f"{self.log} log of {self.log_files} files of {self.log_file_size} bytes{crash}"


def check_directory(settings: Settings) -> FoundStore:
    """What the settings' directory holds, when a node can be started there.

    Raises:
        ConfigError: another kind of log, another member's, or files of other sizes than the
            settings say; a runtime directory that cannot hold sockets; or keys of the group that
            are missing or wrong.
        CorruptLogError: the files are not those of a log.
        StorageError: the directory cannot be read.
    """
    check_path(RuntimePaths(settings.listen.runtime_dir).control)
    load_keys(settings)
    paths = StorePaths.of(settings)
    try:
        return _check(settings, paths)
    except OSError as error:
        raise StorageError(
            f"directory not read: {error.strerror}", errno=error.errno, path=str(paths.root)
        ) from error


def _check(settings: Settings, paths: StorePaths) -> FoundStore:
    store = settings.store
    check_kind(paths, settings)
    log = load_files(paths.data, file_size=None, default_size=0)
    if log.starts:
        _compare("mapped_file_size_commit_log", store.mapped_file_size_commit_log, log.file_size)
    if paths.index is not None:
        load_files(paths.index, file_size=None, default_size=0)
    queue_size = found_file_size(paths.consume_queues)
    if queue_size is not None:
        wanted = store.mapped_file_size_consume_queue
        # RocketMQ rounds the setting up to whole units.
        rounded = None if wanted is None else -(-wanted // UNIT_SIZE) * UNIT_SIZE
        _compare("mapped_file_size_consume_queue", rounded, queue_size)
    index_size = None
    if store.message_index_enable:
        layout = IndexLayout(
            slots=store.max_hash_slot_num or SLOTS_DEFAULT,
            items=store.max_index_num or ITEMS_DEFAULT,
        )
        for name in own_names(paths.root / "index", is_index_name):
            index_size = (paths.root / "index" / name).stat().st_size
            _compare("max_hash_slot_num, store.max_index_num", layout.file_size, index_size)
    return FoundStore(
        root=paths.root,
        log=store.log.value,
        log_files=len(log.starts),
        log_file_size=log.file_size if log.starts else None,
        queue_file_size=queue_size,
        index_file_size=index_size,
        # A node that runs has the marker, too.
        left_by_crash=(paths.root / "abort").exists() and not holder_of(paths.root),
    )


def _compare(setting: str, expected: int | None, found: int) -> None:
    if expected is not None and expected != found:
        raise ConfigError(
            "files of the store have another size than the settings say",
            setting=f"store.{setting}",
            expected=expected,
            found=found,
        )
