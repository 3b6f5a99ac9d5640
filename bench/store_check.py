"""How many GiB a second does ``ledgermq store check`` read of a store in the page cache?

Estimate beforehand: with 1 KiB bodies, a record costs 0.1 µs for its CRCs, 0.1 µs for its hashes,
and as much again for comparing its index item, unit and keys; mapping 1.2 KB of the page cache some
0.1 µs. So 2 GiB/s with one process, and twice that with two, as long as memory keeps up.

    python -m bench.store_check [--smoke] [--directory DIR] [--gib N]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from array import array
from pathlib import Path

from bench.machine import spread, write
from ledgermq.formats.dledger_index import FILE_SIZE as ITEM_FILE_SIZE
from ledgermq.formats.host_address import encode_host
from ledgermq.formats.message import Message, encode_message
from ledgermq.formats.properties import encode_properties
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.model.settings import LogKind, StoreSection
from ledgermq.repair.check_store import CheckedStore, CheckOptions, check_store
from ledgermq.store.append_files import AppendFiles
from ledgermq.store.dispatch_build import DispatchBuilder
from ledgermq.store.log_reader import LogReader
from ledgermq.store.log_writer import LogEnd, LogWriter, Run
from ledgermq.store.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.store_directory import open_directory

BODY_SIZE = 1_024
QUEUES = 8
BATCH = 512
HOST = ("127.0.0.1", 10_911)


def write_log(root: Path, *, size: int, file_size: int) -> None:
    """A DLedger log of about ``size`` bytes; tag and two keys each."""
    folder = root / "dledger-n0"
    data = AppendFiles(folder / "data", file_size=file_size, position=0)
    index = AppendFiles(folder / "index", file_size=ITEM_FILE_SIZE, position=0)
    end = LogEnd(Position(0), Index(-1), Term(0), 0)
    writer = LogWriter(data, index, end=end, store_host=encode_host(HOST))
    number = 0
    while writer.end.position < size:
        records = [_record(number + one, number // BATCH % QUEUES) for one in range(BATCH)]
        offset = QueueOffset(number // BATCH // QUEUES * BATCH)
        sizes = memoryview(array("I", map(len, records)))
        writer.put(
            b"".join(records),
            sizes,
            [Run(BATCH, offset)],
            term=Term(1),
            store_timestamp=1_600_000_000_000 + number,
        )
        number += BATCH
    writer.publish()
    last = writer.end.index_
    writer.close()
    (folder / "checkpoint").write_bytes(encode_dledger_checkpoint(DLedgerCheckpoint(last, last)))


def build_queues(root: Path) -> None:
    """What the dispatcher builds of the log."""
    reader = LogReader(open_directory(root))
    section = StoreSection(path_root_dir=root, log=LogKind.DLEDGER)
    (root / "ledgermq").mkdir()
    builder = DispatchBuilder.open(
        section, log_start=reader.first, log_end=reader.end, published=None
    )
    builder.position = reader.first
    while builder.position < reader.end:
        span = reader.span(builder.position)
        end = min(reader.end, span.position + len(span.view))
        builder.build(span.view, span.position, Position(end), header_size=span.header_size)
    builder.flush()
    builder.close()
    reader.close()


def timed(root: Path, *, jobs: int) -> tuple[float, CheckedStore]:
    """Seconds of one check, and what it read."""
    begin = time.perf_counter()
    checked = check_store(root, CheckOptions(jobs=jobs))
    return time.perf_counter() - begin, checked


def _record(number: int, queue_id: int) -> bytes:
    properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"key-{number}", "TAGS": "TagA"}
    message = Message(
        topic="bench",
        queue_id=queue_id,
        body=number.to_bytes(8, "big") * (BODY_SIZE // 8),
        properties=encode_properties(properties),
        born_timestamp=1_600_000_000_000,
        born_host=HOST,
    )
    return bytes(48) + encode_message(message)


def main() -> None:
    """Make a store, check it, write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--gib", type=float, default=4.0)
    arguments = parser.parse_args()
    size = (64 << 20) if arguments.smoke else int(arguments.gib * 2**30)
    file_size = (16 << 20) if arguments.smoke else 2**30
    figures: dict[str, object] = {"body_size": BODY_SIZE}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        root = Path(folder)
        write_log(root, size=size, file_size=file_size)
        build_queues(root)
        _, checked = timed(root, jobs=1)
        assert checked.findings == [], checked.findings[:10]
        figures |= {"records": checked.records, "log_gib": round(checked.end / 2**30, 3)}
        for jobs in (1, 2):
            runs = [timed(root, jobs=jobs) for _ in range(1 if arguments.smoke else 5)]
            rates = [checked.end / 2**30 / seconds for seconds, checked in runs]
            figures[f"gib_per_s_jobs_{jobs}"] = spread(rates)
    if arguments.smoke:
        print(figures)
    else:
        write("store_check", figures)


if __name__ == "__main__":
    main()
