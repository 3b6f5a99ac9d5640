"""A store of a size that is asked for, for the benchmarks that read one."""

from __future__ import annotations

import argparse
from array import array
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.dledger_index import FILE_SIZE as ITEM_FILE_SIZE
from ledgermq.formats.records.host_address import encode_host
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.store_directory import open_directory

SMOKE_SIZE = 64 << 20
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
            [StampedRun(BATCH, offset)],
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
        end = min(reader.end, span.start + len(span.view))
        builder.build(span.view, span.start, Position(end), header_size=span.header_size)
    builder.flush()
    builder.close()
    reader.close()


class Asked(NamedTuple):
    """What the command line asks for.

    Attributes:
        directory: where stores are made; the default for temporary files if None.
        size: bytes of the log.
    """

    smoke: bool
    directory: Path | None
    size: int


def asked_for(description: str | None, *, gib: float) -> Asked:
    """Read the command line of a benchmark that makes a store; ``gib`` is its usual size."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--gib", type=float, default=gib)
    given = parser.parse_args()
    size = SMOKE_SIZE if given.smoke else int(given.gib * 2**30)
    return Asked(given.smoke, given.directory, size)


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
