"""Directory removal: a folder with all that is in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from ledgermq.store.files.disk_space import storage_error


def delete_folder(folder: Path) -> None:
    """Delete ``folder`` and what is in it; it need not be there.

    Raises:
        StorageError: the operating system refused.
    """
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise storage_error("folder not deleted", error, folder=str(folder)) from error
