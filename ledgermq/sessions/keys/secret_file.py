"""Secret files: readable by their owner alone, replaced as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ledgermq.model.errors import ConfigError, refused_as
from ledgermq.store.files.disk_sync import make_directories, sync_directory


def write_secret_file(path: Path, content: bytes, *, what: str, makes_folder: bool = False) -> None:
    """Have ``content`` in ``path``, readable by its owner alone, durable on return; all or nothing.

    Args:
        what: the secret, as an error names it.
        makes_folder: a folder that is missing is made, for its owner alone.

    Raises:
        ConfigError: others may change its folder.
        StorageError: the operating system refused.
    """
    fresh = path.with_name(f"{path.name}.new")
    with refused_as(f"{what} not written", why="within", file=path):
        check_folder(path.parent)
        if makes_folder:
            make_directories(path.parent, mode=0o700)
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_directory(path.parent)


def check_folder(folder: Path) -> None:
    """Refuse a folder for keys in which others may put something else in the place of them.

    Args:
        folder: where they are to be made; of one that is missing the nearest one above it counts.

    Raises:
        ConfigError: everybody may, or a group that is not the one of this process.
        OSError: the operating system refused.
    """
    above = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
    found = above.stat()
    others = stat.S_IWOTH if found.st_gid == os.getegid() else stat.S_IWOTH | stat.S_IWGRP
    # As of /tmp: there nobody removes what is another's.
    if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
        raise ConfigError(
            "others may change the folder in which keys are to be made: name another one",
            folder=str(above),
            mode=oct(stat.S_IMODE(found.st_mode)),
            group=found.st_gid,
        )
