"""How many slots and items the index files of a store have, as the files themselves tell it.

Header, items and slots of the newest file are not written in one moment, so under a node that runs
it tells nothing, or what is not so. The others have not changed since they were full.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ledgermq.formats.findings import REBUILD, Finding, Severity
from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.store.index_reader import layout_of

_ATTEMPTS_MAX = 10
_PAUSE_S = 0.02


def find_geometry(paths: Sequence[Path], *, is_open: bool) -> IndexLayout | Finding | None:
    """The geometry of all index files, oldest first, or why they cannot be compared.

    ``None`` while no file has a key: they have nothing that could be compared.

    Args:
        is_open: a node may be writing to the newest file. When that alone has keys, and cannot be
            understood however often it is read, that is noted, and no fault.

    Raises:
        StorageError: a file cannot be read.
    """
    settled, newest = (paths[:-1], paths[-1:]) if is_open else (paths, ())
    try:
        layout = layout_of(settled)
    except (ConfigError, CorruptLogError) as error:
        return _not_compared(Severity.DERIVED, error.message)
    for attempt in range(_ATTEMPTS_MAX if newest and layout is None else 0):
        try:
            return layout_of(newest)
        except (ConfigError, CorruptLogError):
            if attempt + 1 == _ATTEMPTS_MAX:
                return _not_compared(Severity.NOTE, "the only one with keys is being written")
            time.sleep(_PAUSE_S)
    return layout


def _not_compared(severity: Severity, why: str) -> Finding:
    remedy = "say --hash-slots and --index-items, or " + REBUILD
    return Finding(severity, "index", None, f"index files not compared: {why}", remedy=remedy)
