"""How many MB a second does ``ledgermq store downgrade`` convert of a store in the page cache?

Estimate beforehand: with 1 KiB bodies an entry is verified in 0.1 µs; numpy gathers what is kept of
it with a mask, at about 1 ns a byte; writing to the page cache takes another 0.3 ns a byte. So
600 MB/s for the log, as long as the disk takes it; queues and index take 0.3 µs a message more.

    python -m bench.store_downgrade [--smoke] [--directory DIR] [--gib N]
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from bench.machine import spread, write
from bench.made_store import BODY_SIZE, asked_for, build_queues, write_log
from ledgermq.conversion.downgrade import Downgrade, downgrade, undo_downgrade
from ledgermq.model.config.settings import LogKind, StoreSection


def converted(root: Path) -> Downgrade:
    """What one downgrade has done; the store is then as it was."""
    section = StoreSection(path_root_dir=root, log=LogKind.COMMITLOG)
    done = downgrade(root, section, self_id=None, progress=lambda *_: None)
    undo_downgrade(root)
    # Only what was converted is to be measured: the next one begins with nothing known, too.
    shutil.rmtree(root / "ledgermq")
    return done


def main() -> None:
    """Make a store, downgrade it several times, write the figures down."""
    asked = asked_for(__doc__, gib=4.0)
    file_size = (16 << 20) if asked.smoke else 2**30
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        root = Path(folder)
        write_log(root, size=asked.size, file_size=file_size)
        build_queues(root)
        runs = [converted(root) for _ in range(1 if asked.smoke else 5)]
    figures: dict[str, object] = {
        "body_size": BODY_SIZE,
        "records": runs[0].records,
        "log_gib": round(runs[0].bytes / 2**30, 3),
        "log_mb_per_s": spread([run.bytes / 1e6 / run.log_seconds for run in runs]),
        "queues_mb_per_s": spread([run.bytes / 1e6 / run.queue_seconds for run in runs]),
    }
    if asked.smoke:
        print(figures)
    else:
        write("store_downgrade", figures)


if __name__ == "__main__":
    main()
