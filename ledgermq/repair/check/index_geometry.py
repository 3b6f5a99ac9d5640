"""Index geometry: how many slots and items a store's index files have, read from the files.

Header, items and slots of the newest file are not written in one moment, so under a node that runs
it tells nothing, or what is not so. The others have not changed since they were full.
"""

from __future__ import annotations

import time
from pathlib import Path

from ledgermq.formats.findings import REBUILD, Finding, Severity
from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.index.index_reader import layout_of

_ATTEMPTS_MAX = 10
_PAUSE_S = 0.02


def index_files(folder: Path) -> list[Path]:
    """The index files in ``folder``, which need not exist, oldest first."""
    return [folder / name for name in own_names(folder, is_index_name)]


def find_geometry(folder: Path, *, is_open: bool) -> IndexLayout | Finding | None:
    """The geometry of all index files in ``folder``, or why they cannot be compared.

    ``None`` while no file has a key: they have nothing that could be compared.

    Args:
        is_open: a node may be writing to the newest file, and put keys again that a crash has
            taken from the others. When the newest alone has keys, and cannot be understood however
            often it is read, that is noted, and no fault.

    Raises:
        StorageError: a file cannot be read.
    """
    for attempt in range(_ATTEMPTS_MAX if is_open else 1):
        if attempt:
            time.sleep(_PAUSE_S)
        paths = index_files(folder)
        settled, newest = (paths[:-1], paths[-1:]) if is_open else (paths, ())
        severity, why = Severity.DERIVED, ""
        try:
            layout = layout_of(settled)
            severity, why = Severity.NOTE, "the only one with keys is being written"
            return layout_of(newest) if layout is None else layout
        except (ConfigError, CorruptLogError) as error:
            why = why or error.message
    return _not_compared(severity, why)


def _not_compared(severity: Severity, why: str) -> Finding:
    remedy = "say --hash-slots and --index-items, or " + REBUILD
    return Finding(severity, "index", None, f"index files not compared: {why}", remedy=remedy)
