"""Mirror mark: ``ROOT/ledgermq/mirror`` says that the store is a copy of another site's log.

Text: a line of JSON, and its CRC-32 (``store/files/checked_document.py``):

    {"cluster": NAME, "group": NAME}

Neither a forgotten line of the settings nor a wrong folder is to make two groups of one: a store
with the mark is opened by a mirror alone, and one with a log and without the mark by none.
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.store_paths import StorePaths

FILE = "mirror"


def check_mirror_mark(settings: Settings) -> None:
    """Go on where the store may be opened with these settings; a new mirror's store gets its mark.

    Raises:
        ConfigError: the store is a mirror's, and the settings are not; or the other way round.
        CorruptLogError: the mark is not whole.
        StorageError: the operating system refused.
    """
    path = mirror_mark_path(settings)
    is_marked = read_document(path) is not None
    is_mirror = bool(settings.mirror.sources)
    if is_marked == is_mirror:
        return
    if is_marked:
        raise ConfigError(
            "the store is a mirror of another site's group: without mirror.sources it would be a"
            " second group of the same name; ledgermq mirror promote makes it one",
            file=str(path),
            setting="mirror.sources",
        )
    if _has_log(settings):
        raise ConfigError(
            "the store has a log of its own: a mirror begins with an empty one",
            directory=str(settings.store.path_root_dir),
            setting="mirror.sources",
        )
    make_directories(path.parent)
    node = settings.node
    write_document(path, {"cluster": node.broker_cluster_name, "group": node.group})


def mirror_mark_path(settings: Settings) -> Path:
    """Where the mark stands, if the store has one."""
    return StorePaths.of(settings).own / FILE


def _has_log(settings: Settings) -> bool:
    paths = StorePaths.of(settings)
    folders = (paths.data, paths.old)
    return any(
        folder is not None and folder.is_dir() and any(folder.iterdir()) for folder in folders
    )
