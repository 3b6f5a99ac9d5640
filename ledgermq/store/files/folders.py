"""Directory removal: a folder with all that is in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from ledgermq.model.errors import refused_as


def delete_folder(folder: Path) -> None:
    """Delete ``folder`` and what is in it; it need not be there.

    Raises:
        StorageError: the operating system refused.
    """
    with refused_as("folder not deleted", writes=True, folder=folder):
        if folder.exists():
            shutil.rmtree(folder)
