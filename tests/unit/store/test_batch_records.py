"""Records of several messages, as in RocketMQ 5's batch queues, and what is dispatched of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.kernels import kernel
from ledgermq.formats.records.message import INNER_BATCH, NEED_UNWRAP, Message, encode_message
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.queues import dispatch_tables
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.store_view import StoreView

HOST = ("10.0.0.1", 4711)
OFFSETS = {
    "batched": [(0, True), (4, True), (8, True), (9, False), (10, False)],
    "orders": [(0, False)],
}


def log_of_batches() -> bytes:
    """A log of records as 5.5.1 writes it: three of 4, 4 and 1 messages, and single ones."""
    log = bytearray()
    for topic, rows in OFFSETS.items():
        for offset, is_batch in rows:
            message = Message(
                topic=topic,
                queue_id=0,
                body=b"x",
                queue_offset=offset,
                physical_offset=len(log),
                sys_flag=NEED_UNWRAP | INNER_BATCH if is_batch else 0,
                born_timestamp=1_700_000_000_000,
                born_host=HOST,
                store_timestamp=1_700_000_000_000,
                store_host=HOST,
            )
            log += encode_message(message)
    return bytes(log)


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_record_of_several_messages_has_no_unit_and_the_others_their_place(
    tmp_path: Path, is_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_plain:
        plain = kernel.load_plain("ledgermq.formats.kernels._scan")
        monkeypatch.setattr(dispatch_tables, "dispatch_span", plain.dispatch_span)
    log, root = log_of_batches(), tmp_path / "store"
    for folder in ("commitlog", "consumequeue", "index"):
        (root / folder).mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(log.ljust(4_096, b"\0"))
    section = StoreSection(
        path_root_dir=root, log=LogKind.COMMITLOG, mapped_file_size_consume_queue=4_000,
        max_hash_slot_num=500, max_index_num=400,
    )  # fmt: skip
    end = Position(len(log))
    builder = DispatchBuilder.open(section, log_start=Position(0), log_end=end, published=None)
    built = builder.build(memoryview(log), Position(0), end, header_size=0)
    builder.flush()
    builder.close()
    view = StoreView(root)
    bounds = {one.topic: (one.first, one.end) for one in view.queues()}
    view.close()

    assert (built.messages, built.units, built.skipped) == (6, 3, 0)
    assert bounds == {"batched": (9, 11), "orders": (0, 1)}
