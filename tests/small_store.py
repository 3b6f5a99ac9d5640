"""A whole store of our own with tiny files, for tests that break it, build it again, or copy it."""

from __future__ import annotations

import json
from pathlib import Path

from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.records.host_address import encode_host
from ledgermq.members.peer_identity import KnownPeers, take_identity
from ledgermq.model.config.settings import NodeSection, StoreSection
from ledgermq.model.ids import Index, NodeId, Position, QueueOffset, Term
from ledgermq.raft.messages import HardState
from ledgermq.raft_node.term_file import TermFile
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.derived_files import load_derived_files
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.unsure_queues import unsure_queues
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode
from ledgermq.store.store_directory import open_directory
from tests.unit.store.records import BROKER, frame_of, record

LOG_FILE_SIZE = 900
INDEX_FILE_SIZE = 8 * ITEM_SIZE
SIZES = {
    "mapped_file_size_consume_queue": 60,
    "max_hash_slot_num": 5,
    "max_index_num": 4,
}
BEGIN_MS, STEP_MS = 1_600_000_000_000, 700


def write_store(
    root: Path,
    *,
    entries: bool = True,
    messages: int = 10,
    committed: int | None = None,
    begin_ms: int = BEGIN_MS,
    step_ms: int = STEP_MS,
) -> None:
    """A store that was stopped: three log files, two queues, four index files.

    Args:
        committed: index of the last entry that a majority had; all when left out.
        begin_ms, step_ms: when the first message was stored, and how much later each other one.
    """
    times = range(begin_ms, begin_ms + step_ms * messages, step_ms)
    _write_log(root, times, entries=entries, committed=committed)
    dispatch(root)
    config = root / "config"
    config.mkdir()
    topic = {"topicName": "orders", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2}
    (config / "topics.json").write_text(
        json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": {"orders": topic}})
    )
    (root / "lock").write_bytes(b"lock")
    own = root / "ledgermq"
    current_term = root / "dledger-n0" / "currterm" if entries else None
    term = TermFile(own / "term", current_term)
    term.persist(HardState(Term(1), NodeId("n0")))
    term.persist(HardState(Term(2), NodeId("n0")))
    term.close()
    if entries:
        take_identity(own / "identity", NodeSection(self_id="n0"))
        KnownPeers(own / "peers").remember(NodeId("n1"), bytes(range(16)))


def dispatch(root: Path) -> None:
    """Go on where the dispatcher would go on after a start, to the end of what is committed."""
    directory = open_directory(root)
    reader = LogReader(directory)
    section = StoreSection(path_root_dir=root, log=directory.log, **SIZES)
    found = load_derived_files(
        section, published=None, unsure=unsure_queues(root, directory.log_family)
    )
    builder = DispatchBuilder.open(
        section, log_start=reader.first, log_end=reader.end, published=None, files=found
    )
    committed = reader.committed_end()
    while builder.position < committed:
        span = reader.span(builder.position)
        end = min(committed, span.start + len(span.view))
        builder.build(span.view, span.start, Position(end), header_size=span.header_size)
    builder.flush()
    builder.close()
    reader.close()


def _write_log(root: Path, times: range, *, entries: bool, committed: int | None) -> None:
    folder = root / "dledger-n0" / "data" if entries else root / "commitlog"
    data = AppendFiles(folder, file_size=LOG_FILE_SIZE, position=0)
    index = None
    if entries:
        index_folder = root / "dledger-n0" / "index"
        index = AppendFiles(index_folder, file_size=INDEX_FILE_SIZE, position=0)
    end = LogEnd(Position(0), Index(-1 if entries else 0), Term(0), 0)
    writer = LogWriter(data, index, end=end, store_host=encode_host(BROKER))
    for number, stored_ms in enumerate(times):
        body = f"body of message {number}".encode() * (number % 3 + 1)
        one = record(body, number=number, queue_id=number % 2, header_size=writer.header_size)
        payload, sizes = frame_of([one])
        writer.put(
            payload,
            sizes,
            [StampedRun(1, QueueOffset(number // 2))],
            term=Term(1 + number // 6),
            store_timestamp=stored_ms,
        )
    writer.publish()
    checkpoint = LogCheckpoint(writer.end, LOG_FILE_SIZE)
    last = writer.end.index_
    writer.close()
    (root / "ledgermq").mkdir()
    (root / "ledgermq" / "log-checkpoint").write_bytes(encode(checkpoint))
    if entries:
        (root / "dledger-n0" / "checkpoint").write_bytes(
            encode_dledger_checkpoint(
                DLedgerCheckpoint(last, Index(last if committed is None else committed))
            )
        )
