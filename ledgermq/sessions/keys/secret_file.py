"""Secret files: readable by their owner alone, replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from ledgermq.model.errors import StorageError
from ledgermq.store.files.disk_sync import make_directories, sync_directory


def write_secret_file(path: Path, content: bytes, *, what: str, makes_folder: bool = False) -> None:
    """Have ``content`` in ``path``, readable by its owner alone, durable on return; all or nothing.

    Args:
        what: the secret, as an error names it.
        makes_folder: a folder that is missing is made, for its owner alone.

    Raises:
        StorageError: the operating system refused.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
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
    except OSError as error:
        raise StorageError(
            f"{what} not written: {error.strerror}", errno=error.errno, file=str(path)
        ) from error
