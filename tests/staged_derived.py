"""Derived files as ``ledgermq spark rebuild`` leaves them for a store, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ledgermq.model.config.settings import StoreSection
from ledgermq.repair.install_derived import StagedDerived, message_crc, queue_paths, write_staged
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.derived_files import load_derived_files
from ledgermq.store.store_directory import open_directory


def stage(root: Path, built: Path, sizes: Mapping[str, int]) -> None:
    """Put queues and index of ``built``, made of all of the log of ``root``, where an install
    looks for them, described as the job does it.
    """
    staging = root / "ledgermq" / "derived"
    staging.mkdir()
    for name in ("consumequeue", "index"):
        shutil.copytree(built / name, staging / name)
    files = load_derived_files(
        StoreSection(
            path_root_dir=staging,
            mapped_file_size_consume_queue=sizes["mapped_file_size_consume_queue"],
            max_hash_slot_num=sizes["max_hash_slot_num"],
            max_index_num=sizes["max_index_num"],
        ),
        published=None,
    )
    assert files.index is not None
    reader = LogReader(open_directory(root))
    records = list(reader.iterate())
    last = int(records[-1].position) + reader.span(records[-1].position).header_size
    staged = StagedDerived(
        complete=True,
        first=int(reader.first),
        end=int(reader.end),
        messages=len(records),
        units=len(records),
        ends=files.queues.units,
        queue_files=len(queue_paths(staging)),
        index_end=files.index.end_position,
        store_timestamp=records[-1].message.store_timestamp,
        last=last,
        last_crc=message_crc(reader, last),
        queue_file_size=sizes["mapped_file_size_consume_queue"],
        hash_slots=sizes["max_hash_slot_num"],
        index_items=sizes["max_index_num"],
    )
    files.close()
    reader.close()
    write_staged(staging, staged)
