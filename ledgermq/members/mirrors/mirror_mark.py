"""Mirror mark: ``ROOT/ledgermq/mirror`` says that the store is a copy of another site's log.

Text: a line of JSON, and its CRC-32 (``store/files/checked_document.py``):

    {"cluster": NAME, "group": NAME}

While the store of a group is made a mirror's (``mirror_promotion.py``), it has ``"rejoining"``,
too: the folder that has what was cut off; until that is done nobody opens the store.

Neither a forgotten line of the settings nor a wrong folder is to make two groups of one: a store
with the mark is opened by a mirror alone, and one with a log and without the mark by none.
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.file_names import starts_in
from ledgermq.store.files.store_paths import StorePaths

FILE = "mirror"

REJOINING = "rejoining"
"""The key of a mark that says that the store is not a mirror's yet."""


def check_mirror_mark(settings: Settings) -> None:
    """Go on where the store may be opened with these settings; a new mirror's store gets its mark.

    Raises:
        ConfigError: the store is a mirror's, and the settings are not; or the other way round.
        CorruptLogError: the mark is not whole.
        StorageError: the operating system refused.
    """
    path = mirror_mark_path(settings)
    document = read_document(path)
    is_marked = document is not None
    if document is not None:
        refuse_unfinished_rejoin(path, document)
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
            "the store has a log of its own: a mirror begins with an empty one, or ledgermq mirror"
            " rejoin makes one of a group that was left",
            directory=str(settings.store.path_root_dir),
            setting="mirror.sources",
        )
    make_directories(path.parent)
    write_mirror_mark(settings)


def write_mirror_mark(settings: Settings, *, rejoining: str | None = None) -> None:
    """Mark the store; durable on return.

    Args:
        rejoining: the folder that has what is cut off; None: all is done.

    Raises:
        StorageError: the operating system refused.
    """
    node = settings.node
    document: dict[str, object] = {"cluster": node.broker_cluster_name, "group": node.group}
    if rejoining is not None:
        document[REJOINING] = rejoining
    write_document(mirror_mark_path(settings), document)


def refuse_unfinished_rejoin(path: Path, document: dict[str, object]) -> None:
    """Refuse a store that is half made a mirror's.

    Args:
        path, document: of the mark.

    Raises:
        ConfigError: that must be gone on with.
    """
    if REJOINING in document:
        raise ConfigError(
            "the store was being made a mirror's, which is not done: run the same ledgermq mirror"
            " rejoin again",
            file=str(path),
            folder=document[REJOINING],
        )


def mirror_mark_path(settings: Settings) -> Path:
    """Where the mark stands, if the store has one."""
    return StorePaths.of(settings).own / FILE


def _has_log(settings: Settings) -> bool:
    paths = StorePaths.of(settings)
    folders = (paths.data, paths.old)
    return any(folder is not None and starts_in(folder) for folder in folders)
