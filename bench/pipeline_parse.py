"""How many rows a second does one core make of a log, all columns and every CRC?

Estimate beforehand: a record of 1.2 KB is copied once (0.1 µs from the page cache) and summed once
(0.1 µs); its fixed fields cost 0.1 µs in numpy, its properties 0.4 µs in Arrow. So 1.4 million rows
a second, of which the properties take the most.

    python -m bench.pipeline_parse [--smoke] [--directory DIR] [--gib N]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.machine import spread, write
from bench.made_store import BODY_SIZE, asked_for, build_queues, write_log
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.source.store_source import StoreSource
from tests.row_batches import batches_of

CASES: dict[str, Sequence[str]] = {
    "all": COLUMNS,
    "no_crc": [name for name in COLUMNS if name != "crcOk"],
    "no_body": [name for name in COLUMNS if name != "body"],
    "three": ("topic", "queueOffset", "storeTimestamp"),
}


def rows_per_s(root: Path, columns: Sequence[str]) -> float:
    """Rows of the whole store in a second of this process's time."""
    source = StoreSource(root)
    ranges = [range_ for range_ in source.bounds(source.queues()).values() if range_.end]
    # As Spark's tasks do, each some stretch of the log.
    parts = source.plan(ranges, split_bytes=128 << 20, splits_min=1)
    begin = time.process_time()
    rows = 0
    for part in parts:
        read = source.read(part, fail_on_data_loss=True)
        for batch in batches_of(read, columns, RowFilter(), inflate=True):
            rows += batch.num_rows
    seconds = time.process_time() - begin
    source.close()
    return rows / seconds


def main() -> None:
    """Make a store, read it, write the figures down."""
    asked = asked_for(__doc__, gib=1.0)
    figures: dict[str, object] = {"body_size": BODY_SIZE}
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        root = Path(folder)
        write_log(root, size=asked.size, file_size=min(asked.size, 2**30))
        build_queues(root)
        rows_per_s(root, COLUMNS)
        for name, columns in CASES.items():
            rates = [rows_per_s(root, columns) for _ in range(2 if asked.smoke else 7)]
            figures[f"krows_per_s_{name}"] = spread([rate / 1_000 for rate in rates])
    if asked.smoke:
        print(figures)
    else:
        write("pipeline_parse", figures)


if __name__ == "__main__":
    main()
