"""Logs that the real brokers wrote, sealed: the very bytes, and the messages of each queue."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.formats.findings import Severity
from ledgermq.formats.records.message import decode_message
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests import left_out

if reason := left_out.without_spark(needs_java=False):
    pytest.skip(reason, allow_module_level=True)

from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.piece_places import SealedFolder

pytestmark = pytest.mark.slow

SIZES = SealSizes(piece_bytes=200_000, group_bytes=20_000)
STORES = ["gs1", "gd0", "gu0", "g6", "p551", "p551v2k"]
"""A plain log, entries, an upgraded one, IPv6 hosts, and two of RocketMQ 5."""


@pytest.mark.parametrize("name", STORES)
def test_a_log_of_rocketmq_comes_back_byte_for_byte(name: str, golden: Any, tmp_path: Path) -> None:
    place = SealedFolder(tmp_path)
    found: dict[tuple[str, int], list[int]] = {}
    with closing(LogReader(open_directory(golden(name)))) as reader:
        seal_log(place, reader, reader.end, sizes=SIZES)
        queues = ColdQueues(place)
        records = 0
        for row in queues.manifest.rows:
            piece = queues.piece(row)
            records += piece.verify()
            part = reader.part_of(row.start)
            view = part.files.view(part.files.start_of(row.start), part.files.file_size)
            first = row.start - part.files.start_of(row.start)
            assert piece.log() == view[first : first + row.end - row.start]
        for record in reader.iterate():
            message = record.message
            if message.transaction not in (0x4, 0xC):
                queue = found.setdefault((message.topic, message.queue_id), [])
                queue.append(int(message.physical_offset))
        assert records == sum(1 for _ in reader.iterate()) > 0
    for (topic, queue_id), positions in found.items():
        first = queues.queues()[topic, queue_id].first  # type: ignore[index]
        read = list(queues.read(topic, queue_id, first))
        assert [one.position for one in read] == positions
        assert all(decode_message(memoryview(one.record)).topic == topic for one in read)


@pytest.mark.parametrize("name", STORES)
def test_a_store_of_rocketmq_is_restored_from_pieces(
    name: str, golden_copy: Any, tmp_path: Path
) -> None:
    # Whoever seals locks the store.
    root, place, again = golden_copy(name), str(tmp_path / "place"), tmp_path / "again"
    assert main(["piece", "seal", str(root), "--to", place]) == 0
    whole = sorted(list_log(root))

    # The golden ones have members whose names are not theirs to choose: they are RocketMQ's.
    assert main(["backup", "restore", place, str(again)]) == 0
    with closing(LogReader(open_directory(root))) as reader:
        end = reader.committed_end()
    assert (
        b"".join(content for _, content in sorted(list_log(again)))[:end]
        == (b"".join(content for _, content in whole)[:end])
    )
    found = check_store(again, CheckOptions()).findings
    assert [one.as_text() for one in found if one.severity is not Severity.NOTE] == []


def list_log(root: Path) -> list[tuple[str, bytes]]:
    """The files of a log, by their first positions."""
    folders = [*root.glob("commitlog"), *root.glob("dledger-*/data")]
    return [(path.name, path.read_bytes()) for one in folders for path in one.iterdir()]
