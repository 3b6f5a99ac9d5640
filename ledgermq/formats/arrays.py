"""Types of numpy arrays: of numbers in the machine's order, and of records as files have them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ledgermq.formats.batch_unit import BATCH_UNIT_SIZE

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

KEY_ITEM = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
"""An item of a file of keys, as ``formats/index_file.py`` describes it."""

UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])
"""A unit of a ConsumeQueue, as ``formats/queue_unit.py`` describes it; ``tags`` is their code."""

BATCH_UNIT = np.dtype(
    [
        ("position", ">i8"),
        ("size", ">i4"),
        ("tags", ">i8"),
        ("store_time", ">i8"),
        ("base", ">i8"),
        ("count", ">i2"),
        ("compacted", ">i4"),
        ("reserved", ">i4"),
    ]
)
"""A unit of a queue of batches, as ``formats/batch_unit.py`` describes it."""
assert BATCH_UNIT.itemsize == BATCH_UNIT_SIZE

Units = npt.NDArray[np.void]

ENTRY_ITEM = np.dtype(
    [("magic", ">i4"), ("position", ">i8"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8")]
)
"""An item of DLedger's index, as ``formats/dledger_index.py`` describes it."""
