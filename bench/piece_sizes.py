"""Bytes of sealed pieces of JSON messages, beside other ways to have log and table in one place.

Of three sizes of messages: what zstd makes of the log, and what a log with a table beside it, and a
table that has the log inside, take in parts of that. One process, and no clock but the processor's.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from array import array
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.machine import write
from ledgermq.conversion.stream.log_facts import records_in
from ledgermq.formats.arrays import I64
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.host_address import encode_host
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.record_columns import RecordBlock, RecordColumns
from ledgermq.pipeline.pieces.log_columns import PIECE_SCHEMA, piece_table
from ledgermq.pipeline.pieces.piece_seal import GROUP_LOG_BYTES, LEVEL, parquet_form, seal_stretch
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun

TOPICS = ("orders", "payments", "stock", "mail")
QUEUES = 4
BEGIN_MS = 1_780_000_000_000
TABLE_GROUP_BYTES = 16 << 20
"""Of the log in a row group of a table that stands beside it, as archives have it."""

_NAMES = [
    f"{one} {two}" for one in ("Ada", "Bo", "Cy", "Dee") for two in ("Lund", "Novak", "Okoro")
]


class Kind(NamedTuple):
    """Messages of one size: how many, and how many items are in the list of each, half-open."""

    name: str
    messages: int
    items: tuple[int, int]


KINDS = (
    Kind("small", 120_000, (0, 1)),
    Kind("middle", 60_000, (1, 6)),
    Kind("large", 15_000, (20, 60)),
)


def body(chance: random.Random, number: int, kind: Kind) -> bytes:
    """One order, as JSON."""
    items = [
        {
            "sku": f"SKU-{chance.randrange(5_000):05d}",
            "quantity": chance.randrange(1, 9),
            "price": round(chance.random() * 200, 2),
        }
        for _ in range(chance.randrange(*kind.items))
    ]
    moment = f"{number // 3_600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    order = {
        "orderId": f"{chance.getrandbits(64):016x}",
        "customer": {"id": chance.randrange(200_000), "name": chance.choice(_NAMES)},
        "placedAt": f"2026-11-29T{moment}.{chance.randrange(1_000):03d}Z",
        "currency": chance.choice(("EUR", "USD", "CHF")),
        "items": items,
        "status": chance.choice(("placed", "paid", "shipped")),
        "note": None,
    }
    return json.dumps(order).encode()


def written_log(folder: Path, kind: Kind, messages: int) -> memoryview:
    """The bytes of a log that our writer has written."""
    data = AppendFiles(folder / "data", file_size=256 << 20, position=0)
    index = AppendFiles(folder / "index", file_size=64 << 20, position=0)
    end = LogEnd(Position(0), Index(-1), Term(0), 0)
    writer = LogWriter(data, index, end=end, store_host=encode_host(("10.0.0.1", 10_911)))
    # It is nothing secret.
    chance = random.Random(7)
    offsets: dict[tuple[str, int], int] = {}
    done = 0
    while done < messages:
        topic, queue = chance.choice(TOPICS), chance.randrange(QUEUES)
        count = chance.choice((1, 1, 4, 16))
        records = [_record(chance, done + one, topic, queue, kind) for one in range(count)]
        first = offsets.get((topic, queue), 0)
        offsets[topic, queue] = first + count
        writer.put(
            b"".join(records),
            memoryview(array("I", map(len, records))),
            [StampedRun(count, QueueOffset(first))],
            term=Term(1),
            store_timestamp=BEGIN_MS + 3 * done,
        )
        done += count
    writer.publish()
    size = writer.end.position
    writer.close()
    (file,) = sorted((folder / "data").iterdir())[:1]
    return memoryview(file.read_bytes())[:size]


def _record(chance: random.Random, number: int, topic: str, queue: int, kind: Kind) -> bytes:
    properties = {
        "KEYS": str(chance.randrange(10**9)),
        "UNIQ_KEY": f"7F00000100012A139A55{number:012X}",
        "TAGS": chance.choice("ab"),
        "WAIT": "true",
    }
    message = Message(
        topic=topic,
        queue_id=queue,
        body=body(chance, number, kind),
        properties=encode_properties(properties),
        born_timestamp=BEGIN_MS + 3 * number + chance.randrange(3),
        born_host=(f"10.0.{chance.randrange(4)}.7", 40_000 + chance.randrange(9)),
    )
    return bytes(HEADER_SIZE) + encode_message(message)


def compressed(content: memoryview) -> int:
    """Bytes that zstd makes of it."""
    return len(pa.Codec("zstd", compression_level=LEVEL).compress(content, asbytes=True))


def parquet_size(block: RecordBlock, order: I64, columns: list[str], group_bytes: int) -> int:
    """Bytes of a Parquet file of those columns, with rows in that order."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([PIECE_SCHEMA.field(name) for name in columns])
    ends = np.cumsum(block.sizes[order] + block.header_size)
    first, done = 0, 0
    with pq.ParquetWriter(sink, schema, **parquet_form(columns)) as writer:
        while first < len(order):
            end = min(int(np.searchsorted(ends, done + group_bytes)) + 1, len(order))
            wanted = order[first:end]
            rows = np.sort(wanted)
            part = block.starts[rows], block.sizes[rows], block.header_size, block.file
            table = piece_table(
                RecordBlock(block.view, block.base, *part), np.searchsorted(rows, wanted)
            )
            writer.write_table(table.select(columns))
            first, done = end, int(ends[end - 1])
    return len(sink.getvalue())


def measured(kind: Kind, messages: int) -> dict[str, float]:
    """What each way takes, in parts of what zstd makes of the log as a whole."""
    with tempfile.TemporaryDirectory() as folder:
        view = written_log(Path(folder), kind, messages)
    lots = records_in(view, 0, len(view), header_size=HEADER_SIZE, base=0)
    starts, sizes = (np.concatenate(columns) for columns in zip(*lots, strict=True))
    block = RecordBlock(view, 0, starts, sizes, HEADER_SIZE)
    rows = RecordColumns(block, inflate=False)
    _, ranks = np.unique(rows.topics.to_numpy(zero_copy_only=False), return_inverse=True)
    of_log = np.arange(len(starts))
    by_queue = np.lexsort((starts, rows.queue_ids, ranks))
    whole = compressed(view)
    blocks = sum(
        compressed(view[at : at + GROUP_LOG_BYTES]) for at in range(0, len(view), GROUP_LOG_BYTES)
    )
    every = list(COLUMNS)
    without = [name for name in every if name != "body"]
    beside = parquet_size(block, of_log, every, TABLE_GROUP_BYTES)
    bare = parquet_size(block, of_log, without, TABLE_GROUP_BYTES)
    inside = PIECE_SCHEMA.names
    in_order = parquet_size(block, of_log, inside, GROUP_LOG_BYTES)
    sorted_size = parquet_size(block, by_queue, inside, GROUP_LOG_BYTES)
    begun = time.process_time()
    piece = seal_stretch(view, 0, len(view), header_size=HEADER_SIZE, base=0)
    seconds = time.process_time() - begun
    return {
        "bytes of a message": len(view) / len(starts),
        "zstd of the log": whole / len(view),
        "log, and all columns beside it": (blocks + beside) / whole,
        "log, and columns without bodies": (blocks + bare) / whole,
        "inside, in the order of the log": in_order / whole,
        "inside, by topic and queue": sorted_size / whole,
        "a sealed piece": piece.size / whole,
        "MB/s of a core": len(view) / 1e6 / seconds,
    }


def main() -> None:
    """Print and keep the figures of each kind of messages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    found = {kind.name: measured(kind, 500 if given.smoke else kind.messages) for kind in KINDS}
    if given.smoke:
        print(json.dumps(found, indent=2))
    else:
        write("piece_sizes", {"parts_of_the_log_in_zstd": found})


if __name__ == "__main__":
    main()
