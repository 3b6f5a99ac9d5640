"""How many GiB a second does ``ledgermq store check`` read of a store in the page cache?

Estimate beforehand: with 1 KiB bodies, a record costs 0.1 µs for its CRCs, 0.1 µs for its hashes,
and as much again for comparing its index item, unit and keys; mapping 1.2 KB of the page cache some
0.1 µs. So 2 GiB/s with one process, and twice that with two, as long as memory keeps up.

    python -m bench.store_check [--smoke] [--directory DIR] [--gib N]
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.machine import spread, write
from bench.made_store import BODY_SIZE, asked_for, build_queues, write_log
from ledgermq.repair.check.check_store import CheckedStore, CheckOptions, check_store


def timed(root: Path, *, jobs: int) -> tuple[float, CheckedStore]:
    """Seconds of one check, and what it read."""
    begin = time.perf_counter()
    checked = check_store(root, CheckOptions(jobs=jobs))
    return time.perf_counter() - begin, checked


def main() -> None:
    """Make a store, check it, write the figures down."""
    asked = asked_for(__doc__, gib=4.0)
    file_size = (16 << 20) if asked.smoke else 2**30
    figures: dict[str, object] = {"body_size": BODY_SIZE}
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        root = Path(folder)
        write_log(root, size=asked.size, file_size=file_size)
        build_queues(root)
        _, checked = timed(root, jobs=1)
        assert checked.findings == [], checked.findings[:10]
        figures |= {"records": checked.records, "log_gib": round(checked.end / 2**30, 3)}
        for jobs in (1, 2):
            runs = [timed(root, jobs=jobs) for _ in range(1 if asked.smoke else 5)]
            rates = [checked.end / 2**30 / seconds for seconds, checked in runs]
            figures[f"gib_per_s_jobs_{jobs}"] = spread(rates)
    if asked.smoke:
        print(figures)
    else:
        write("store_check", figures)


if __name__ == "__main__":
    main()
