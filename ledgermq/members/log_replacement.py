"""Replacement of the log by one that was shipped, while no other process runs.

``ROOT/ledgermq/shipped/`` is filled by the raft process (``raft_node/shipping/file_receiver.py``).
Once all is there, verified and durable, ``complete`` is made in it: from then on there is no way
back. The raft process ends; the supervisor, which has stopped the others, renames folders, and
starts them again. Killed in between it goes on when it starts: each step can be repeated, and
``complete`` goes last. What the log was stands in ``ROOT/ledgermq/replaced/`` until the raft
process has deleted it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.model.errors import refused_as
from ledgermq.model.events import Event
from ledgermq.store.files.disk_sync import make_directories, sync_directory
from ledgermq.store.files.kept_aside import move
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.queues.queue_ends import NAME as ENDS_NAME
from ledgermq.store.queues.queue_ends import ends_path

logger = logging.getLogger(__name__)


def staging_folder(paths: StorePaths) -> Path:
    """Where shipped files arrive."""
    return paths.own / "shipped"


def replaced_folder(paths: StorePaths) -> Path:
    """What nobody needs any more."""
    return paths.own / "replaced"


def is_complete(paths: StorePaths) -> bool:
    """Whether a shipped log waits to take the place of the one in use."""
    return (staging_folder(paths) / "complete").exists()


def mark_complete(paths: StorePaths) -> None:
    """The shipped log is to take the place of the one in use; durable when this returns.

    Raises:
        StorageError: the operating system refused.
    """
    replace_file(staging_folder(paths) / "complete", b"")


def replace_log(paths: StorePaths) -> bool:
    """Put the shipped log in place if it is complete; whether it was.

    ConsumeQueues and Index are set aside: they are built again from the log's new beginning, and,
    of queues that the log has no message of any more, from the table of ends that came with it.
    Only while no other process of the node runs.

    Raises:
        StorageError: the operating system refused; what is left to be done is done at the next try.
    """
    if paths.index is None or paths.dledger_checkpoint is None or not is_complete(paths):
        return False
    staging = staging_folder(paths)
    aside = replaced_folder(paths)
    with refused_as("log not replaced by the shipped one"):
        make_directories(aside)
        make_directories(paths.data.parent)
        for shipped, place in ((staging / "data", paths.data), (staging / "index", paths.index)):
            if shipped.exists():
                _set_aside(place, aside)
                move(shipped, place)
        batches = paths.root / BATCH_FOLDER
        for old in (paths.root / "commitlog", paths.consume_queues, batches, paths.root / "index"):
            _set_aside(old, aside)
        for derived in (paths.own / "dispatch-checkpoint", paths.root / "checkpoint"):
            derived.unlink(missing_ok=True)
        for name, target in (
            ("log-checkpoint", paths.log_checkpoint),
            ("checkpoint", paths.dledger_checkpoint),
            ("members", paths.own / "members"),
            (ENDS_NAME, ends_path(paths.root)),
        ):
            if (staging / name).exists():
                (staging / name).replace(target)
        for folder in (paths.data.parent, aside, paths.own, paths.root, staging):
            sync_directory(folder)
        (staging / "complete").unlink()
        sync_directory(staging)
    logger.info(
        "log replaced by the one that the leader has shipped", extra={"event": Event.LOG_REPLACED}
    )
    return True


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written on the disk of ``folder``.

    Raises:
        StorageError: the operating system refused.
    """
    with refused_as("disk not looked at", folder=folder):
        found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _set_aside(place: Path, aside: Path) -> None:
    """Move ``place``, if it is there, under a name that is free."""
    if not place.exists():
        return
    number = 0
    while (aside / f"{place.name}.{number}").exists():
        number += 1
    move(place, aside / f"{place.name}.{number}")
