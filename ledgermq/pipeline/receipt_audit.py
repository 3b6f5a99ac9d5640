"""``audit`` by receipts: messages of logs, pieces and archives against what checkpoints signed.

Checkpoints are gone through by the driver, out of all logs and pieces that have some: each is
signed, they go on from one another, and all tell the same history. Workers then make the tree of
each stretch again, of each copy. A root says that a stretch was changed, not which message of it;
a copy that has what was signed says that. An archive has no records: its rows are compared with
those of such a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledgermq.formats.receipts.checkpoint import (
    STRETCH_BYTES_MAX,
    ReceiptCheckpoint,
    SignedHead,
    SignedStretch,
)
from ledgermq.formats.receipts.checkpoint_chain import chained
from ledgermq.formats.receipts.merkle_tree import Peaks, leaf_hash
from ledgermq.formats.receipts.signed_note import NoteKey
from ledgermq.formats.records.message import POSITION, QUEUE_OFFSET_AT, decode_message
from ledgermq.model.errors import ConfigError, CorruptLogError, KeyMissingError, StorageError
from ledgermq.model.limits import RECEIPTS_TOPIC
from ledgermq.pipeline.archive.archive_folder import existing_archive, store_at
from ledgermq.pipeline.archive.archive_layout import PLAIN, ArchivedFile
from ledgermq.pipeline.archive.archive_store import ArchiveStore
from ledgermq.pipeline.archive.archive_writer import ARCHIVED_COLUMNS
from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.queued_records import columns_of
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.jobs.receipt_faults import (
    FAULTS_MAX,
    AuditedCopy,
    AuditedReceipts,
    ReceiptFault,
    ReceiptFaultKind,
)
from ledgermq.pipeline.pieces.log_columns import property_texts
from ledgermq.pipeline.queue_ranges import MessageRange, Queue
from ledgermq.pipeline.source.piece_source import PieceSource
from ledgermq.pipeline.source.store_source import StoreSource

ROUND_STRETCHES = 1 << 17
"""Stretches that the driver has in memory: some hundred bytes each."""

PART_STRETCHES = 4_096
"""Stretches of a queue that are read at once, and at most."""

_COMPARED_ROWS = 4_096
"""Rows of an archive that are compared at once."""

_COMPARED = tuple(name for name in ARCHIVED_COLUMNS if name not in ("raftIndex", "raftTerm"))
"""Columns that a record has: what stands before it in the log is not signed, nor known to a node's
clients."""


class SignedCopy(NamedTuple):
    """A copy that has records: a store, or pieces. It goes to the workers, pickled.

    Attributes:
        name: as faults have it.
        place: directory of the store, or place of the pieces.
        self_id: whose DLedger log, where the store has several.
    """

    name: str
    place: str
    is_store: bool
    self_id: str | None = None

    @contextmanager
    def opened(self) -> Iterator[StoreSource | PieceSource]:
        """The copy, until the block ends.

        Raises:
            ConfigError: the store has no queues, by which messages are found.
            LedgerError: it cannot be read.
        """
        source: StoreSource | PieceSource
        if self.is_store:
            source = StoreSource(Path(self.place), self_id=self.self_id)
        else:
            source = PieceSource(self.place)
        try:
            if isinstance(source, StoreSource) and not source.has_queues:
                raise ConfigError(
                    "store has no queues, by which messages are found: ledgermq store rebuild",
                    directory=self.place,
                )
            yield source
        finally:
            source.close()


def audit_receipts(
    job: Tasks,
    copies: Sequence[SignedCopy],
    archives: Sequence[str],
    keys: Sequence[NoteKey],
    *,
    since: SignedHead | None,
    split_bytes: int,
) -> AuditedReceipts:
    """Compare ``copies`` and ``archives`` with the checkpoints that the copies have.

    Args:
        since: a checkpoint that was kept: what is compared has to go on from it.
        split_bytes: of the log, for a task.

    Raises:
        ConfigError: no copy has a checkpoint, or a place is none.
        StorageError: something cannot be read.
        JobFailedError: Spark gave up.
    """
    return _ReceiptAudit(job, copies, keys, split_bytes).run(archives, since)


class _Chain(NamedTuple):
    """The checkpoints of one copy, which are signed and follow one another."""

    copy: SignedCopy
    begin: int
    last: SignedHead


class _Segment(NamedTuple):
    """Messages of a queue that ``copy`` has as they were signed."""

    queue_id: int
    first: int
    end: int
    copy: SignedCopy


class _ReceiptAudit:
    def __init__(
        self, job: Tasks, copies: Sequence[SignedCopy], keys: Sequence[NoteKey], split_bytes: int
    ) -> None:
        self._job = job
        self._copies = copies
        self._keys = keys
        self._split_bytes = split_bytes
        self._faults: list[ReceiptFault] = []
        self._untold = 0
        self._messages: Counter[str] = Counter()
        self._lacking: Counter[str] = Counter()
        self._proven: dict[str, list[_Segment]] = {}

    def run(self, archives: Sequence[str], since: SignedHead | None) -> AuditedReceipts:
        chains = [chain for copy in self._copies if (chain := self._chain_of(copy)) is not None]
        if not chains and not self._faults:
            raise ConfigError(
                "no checkpoint of receipts is in what is audited",
                copies=[copy.name for copy in self._copies],
            )
        checkpoints = stretches = 0
        pending: list[tuple[SignedStretch, int]] = []
        for one in self._told(chains, since):
            checkpoints += 1
            stretches += len(one.stretches)
            messages = sum(stretch.end - stretch.first for stretch in one.stretches)
            for stretch in one.stretches:
                count = stretch.end - stretch.first
                pending.append((stretch, (one.end - one.begin) * count // messages))
            if len(pending) >= ROUND_STRETCHES:
                self._judge(pending)
                pending = []
        self._judge(pending)
        for place in archives:
            self._compare(place)
        return AuditedReceipts(
            checkpoints=checkpoints,
            stretches=stretches,
            at_ms=max((chain.last.at_ms for chain in chains), default=0),
            copies=tuple(
                AuditedCopy(name, self._messages[name], self._lacking[name])
                for name in [*(copy.name for copy in self._copies), *archives]
            ),
            faults=tuple(self._faults),
            untold=self._untold,
        )

    def _add(self, fault: ReceiptFault) -> None:
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(fault)
        else:
            self._untold += 1

    def _of_history(self, name: str, what: str) -> None:
        self._add(ReceiptFault(name, ReceiptFaultKind.HISTORY, "", 0, 0, 0, what))

    def _chain_of(self, copy: SignedCopy) -> _Chain | None:
        """The checkpoints of a copy; None without any that are to be believed."""
        begin: int | None = None
        last: SignedHead | None = None
        try:
            for one in chained(_checkpoints_of(copy), self._keys):
                begin = one.checkpoint.before.size if begin is None else begin
                last = one.head
        except CorruptLogError as error:
            self._of_history(copy.name, str(error))
            return None
        return None if begin is None or last is None else _Chain(copy, begin, last)

    def _told(
        self, chains: Sequence[_Chain], since: SignedHead | None
    ) -> Iterator[ReceiptCheckpoint]:
        """Each checkpoint once: of the copy that goes back the furthest, and then of those that go
        on behind it.
        """
        heads = [(chain.copy.name, chain.last) for chain in chains]
        if since is not None:
            heads.append(("--since", since))
        waiting: dict[int, list[tuple[str, SignedHead]]] = {}
        for name, head in heads:
            waiting.setdefault(head.size, []).append((name, head))

        def passed(tree: Peaks) -> None:
            for name, head in waiting.pop(tree.size, []):
                if head.root != tree.root():
                    self._of_history(name, f"another tree of {head.size:,} stretches was signed")

        tree: Peaks | None = None
        for chain in sorted(chains, key=lambda one: (one.begin, -one.last.size)):
            for _, one in _checkpoints_of(chain.copy):
                after = one.after()
                if after.size > chain.last.size:
                    # It came since they were looked at.
                    break
                if tree is not None and after.size <= tree.size:
                    continue
                if tree is None or one.before.size > tree.size:
                    passed(one.before)
                elif one.before != tree:
                    self._of_history(chain.copy.name, "does not go on from what the others have")
                    break
                yield one
                tree = after
                passed(tree)
        for found in waiting.values():
            for name, head in found:
                self._of_history(name, f"a tree of {head.size:,} stretches is not on the way")

    def _judge(self, pending: Sequence[tuple[SignedStretch, int]]) -> None:
        """Have the trees of stretches made of all copies; with each the bytes that it may have."""
        parts = [part for copy in self._copies for part in _parts(copy, pending)]
        size = sum(part.size for part in parts)
        outcomes = self._job.each(parts, _verdicts, size=size, split_bytes=self._split_bytes)
        found: dict[SignedStretch, list[tuple[SignedCopy, _Verdict]]] = {}
        for part, verdicts in zip(parts, outcomes, strict=True):
            for stretch, verdict in zip(part.stretches, verdicts, strict=True):
                found.setdefault(stretch, []).append((part.copy, verdict))
        unlike: list[_Unlike] = []
        for stretch, judged in found.items():
            good = next((copy for copy, one in judged if one.state is _State.PROVEN), None)
            if good is not None:
                self._cover(stretch, good)
            for copy, verdict in judged:
                if verdict.state is _State.CHANGED and good is not None:
                    unlike.append(_Unlike(copy, good, stretch))
                else:
                    self._count(copy.name, stretch, verdict)
        size = len(unlike) * STRETCH_BYTES_MAX
        runs = self._job.each(unlike, _runs_unlike, size=size, split_bytes=self._split_bytes)
        for one, places in zip(unlike, runs, strict=True):
            what = f"not what was signed, which {one.good.name} has"
            for first, end in places:
                stretch = one.stretch._replace(first=first, end=end)
                self._add(_fault(one.copy.name, ReceiptFaultKind.CHANGED, stretch, what))

    def _count(self, name: str, stretch: SignedStretch, verdict: _Verdict) -> None:
        """What is said of a stretch without a look at another copy."""
        count = stretch.end - stretch.first
        if verdict.state is _State.PROVEN:
            self._messages[name] += count
        elif verdict.state is _State.LACKING:
            self._lacking[name] += 1
        elif verdict.state is _State.DAMAGED:
            self._add(_fault(name, ReceiptFaultKind.DAMAGED, stretch, verdict.why))
        else:
            what = "not what was signed"
            if count > 1:
                what += f", one or more of {count}: no other copy tells which"
            self._add(_fault(name, ReceiptFaultKind.CHANGED, stretch, what))

    def _cover(self, stretch: SignedStretch, good: SignedCopy) -> None:
        """Note that a copy has a stretch as it was signed; of a queue they come in their order."""
        segments = self._proven.setdefault(stretch.topic, [])
        for at in range(len(segments) - 1, -1, -1):
            last = segments[at]
            if last.queue_id == stretch.queue_id:
                if (last.end, last.copy) == (stretch.first, good):
                    segments[at] = last._replace(end=stretch.end)
                    return
                break
        segments.append(_Segment(stretch.queue_id, stretch.first, stretch.end, good))

    def _compare(self, place: str) -> None:
        """Compare an archive with the copies that have what was signed."""
        store = store_at(place)
        state = existing_archive(store).state
        files: list[_FilePart] = []
        for file in state.files:
            segments = self._proven.get(file.topic, [])
            wanted = tuple(
                segment._replace(
                    first=max(segment.first, span.first), end=min(segment.end, span.end)
                )
                for span in file.spans
                for segment in segments
                if segment.queue_id == span.queue_id
                and max(segment.first, span.first) < min(segment.end, span.end)
                and span.generation == state.marks[file.topic, span.queue_id].generation
            )
            if wanted:
                files.append(_FilePart(place, store, file, state.bodies == PLAIN, wanted))
        size = sum(part.file.bytes for part in files)
        outcomes = self._job.each(files, _compared, size=size, split_bytes=self._split_bytes)
        for messages, faults in outcomes:
            self._messages[place] += messages
            for fault in faults:
                self._add(fault)


def _fault(name: str, kind: ReceiptFaultKind, stretch: SignedStretch, what: str) -> ReceiptFault:
    return ReceiptFault(
        name, kind, stretch.topic, stretch.queue_id, stretch.first, stretch.end, what
    )


def _checkpoints_of(copy: SignedCopy) -> Iterator[tuple[int, ReceiptCheckpoint]]:
    """The checkpoints of a copy, with their offsets; none where it has no topic of receipts."""
    queue = RECEIPTS_TOPIC, 0
    with copy.opened() as source:
        if queue not in source.queues():
            return
        range_ = source.bounds([queue])[queue]
        if range_.first == range_.end:
            return
        for _, offset, record in _records(source, [range_]):
            yield offset, ReceiptCheckpoint.decode(decode_message(record).body)


def _records(
    source: StoreSource | PieceSource, ranges: Sequence[MessageRange]
) -> Iterator[tuple[int, int, memoryview]]:
    """Records of ranges: number of the range, queue offset, and the record's bytes."""
    for part in source.read(ranges, fail_on_data_loss=False):
        view = part.records.view
        for start, size, number in zip(
            part.records.starts.tolist(),
            part.records.sizes.tolist(),
            part.numbers.tolist(),
            strict=True,
        ):
            record = view[start : start + size]
            if len(record) < QUEUE_OFFSET_AT + POSITION.size:
                raise CorruptLogError("record is not whole", file=part.records.file, offset=start)
            yield number, POSITION.unpack_from(record, QUEUE_OFFSET_AT)[0], record


class _State(StrEnum):
    PROVEN = "proven"
    LACKING = "lacking"
    CHANGED = "changed"
    DAMAGED = "damaged"


class _Verdict(NamedTuple):
    state: _State
    why: str = ""


class _Part(NamedTuple):
    """Stretches of one queue, of one copy."""

    copy: SignedCopy
    stretches: tuple[SignedStretch, ...]
    size: int


def _parts(copy: SignedCopy, pending: Sequence[tuple[SignedStretch, int]]) -> Iterator[_Part]:
    by_queue: dict[Queue, list[tuple[SignedStretch, int]]] = {}
    for stretch, size in pending:
        by_queue.setdefault((stretch.topic, stretch.queue_id), []).append((stretch, size))
    for found in by_queue.values():
        first = total = 0
        for at, (_, size) in enumerate(found, 1):
            total += size
            if total >= STRETCH_BYTES_MAX or at - first == PART_STRETCHES or at == len(found):
                yield _Part(copy, tuple(stretch for stretch, _ in found[first:at]), total)
                first, total = at, 0


def _verdicts(part: _Part) -> list[_Verdict]:
    with part.copy.opened() as source:
        return _judged(source, part.stretches)


def _judged(
    source: StoreSource | PieceSource, stretches: Sequence[SignedStretch]
) -> list[_Verdict]:
    """What is to be said of stretches of one queue."""
    try:
        trees = _trees(source, stretches)
    except (CorruptLogError, KeyMissingError) as error:
        # One is enough to end the reading of all: the others have nothing of it.
        if len(stretches) == 1:
            is_locked = isinstance(error, KeyMissingError)
            return [_Verdict(_State.LACKING if is_locked else _State.DAMAGED, str(error))]
        middle = len(stretches) // 2
        return [*_judged(source, stretches[:middle]), *_judged(source, stretches[middle:])]
    return [
        _Verdict(_state_of(stretch, tree)) for stretch, tree in zip(stretches, trees, strict=True)
    ]


def _state_of(stretch: SignedStretch, tree: Peaks | None) -> _State:
    if tree is None:
        return _State.LACKING
    return _State.PROVEN if tree.root() == stretch.root else _State.CHANGED


def _trees(
    source: StoreSource | PieceSource, stretches: Sequence[SignedStretch]
) -> list[Peaks | None]:
    """The tree of each stretch; None where not all of its messages are there."""
    queue = stretches[0].topic, stretches[0].queue_id
    held = source.bounds([queue])[queue] if queue in source.queues() else None
    whole = [
        number
        for number, one in enumerate(stretches)
        if held is not None and held.first <= one.first and one.end <= held.end
    ]
    ranges = [MessageRange(*stretches[number][:4]) for number in whole]
    trees = [Peaks() for _ in ranges]
    if ranges:
        for number, _, record in _records(source, ranges):
            trees[number].append(leaf_hash(record))
    found: list[Peaks | None] = [None] * len(stretches)
    for number, range_, tree in zip(whole, ranges, trees, strict=True):
        # An offset that is told otherwise makes another leaf, and is no reason to lack it.
        found[number] = tree if tree.size == range_.end - range_.first else None
    return found


class _Unlike(NamedTuple):
    """A stretch that ``copy`` has not as it was signed, and ``good`` has."""

    copy: SignedCopy
    good: SignedCopy
    stretch: SignedStretch


def _runs_unlike(unlike: _Unlike) -> list[tuple[int, int]]:
    """Runs of offsets whose messages are not the same in both copies."""
    range_ = MessageRange(*unlike.stretch[:4])
    leaves: list[list[bytes]] = []
    for copy in (unlike.good, unlike.copy):
        with copy.opened() as source:
            leaves.append([leaf_hash(record) for _, _, record in _records(source, [range_])])
    count = range_.end - range_.first
    good, other = (found + [b""] * (count - len(found)) for found in leaves)
    offsets = [range_.first + at for at in range(count) if good[at] != other[at]]
    return _runs(np.array(offsets, np.int64))


def _runs(offsets: Integers) -> list[tuple[int, int]]:
    """Ascending numbers as runs, half-open."""
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) > 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(offsets, breaks)]


class _FilePart(NamedTuple):
    """A file of an archive, and what of it is known to be signed."""

    place: str
    store: ArchiveStore
    file: ArchivedFile
    inflate: bool
    segments: tuple[_Segment, ...]


def _compared(part: _FilePart) -> tuple[int, list[ReceiptFault]]:
    """How many rows are what was signed, and what others there are.

    Raises:
        StorageError: the file, or the copy, cannot be read.
    """
    messages = 0
    faults: list[ReceiptFault] = []
    try:
        with part.store.fetched(part.file.path) as path, pq.ParquetFile(path) as parquet:
            for group in range(parquet.num_row_groups):
                for batch in parquet.iter_batches(
                    batch_size=_COMPARED_ROWS, row_groups=[group], columns=list(_COMPARED)
                ):
                    for segment in part.segments:
                        rows = pa.Table.from_batches([batch]).filter(_within(batch, segment))
                        if rows.num_rows:
                            found = _other_rows(rows, part, segment)
                            faults += found
                            messages += rows.num_rows - sum(one.end - one.first for one in found)
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(
            "file of the archive not read: ledgermq spark archive-verify",
            errno=getattr(error, "errno", None),
            file=f"{part.store.as_text()}/{part.file.path}",
            reason=str(error)[:300],
        ) from error
    return messages, faults


def _within(batch: pa.RecordBatch, segment: _Segment) -> pa.BooleanArray:
    offsets = batch.column("queueOffset")
    is_within = pc.and_(pc.greater_equal(offsets, segment.first), pc.less(offsets, segment.end))
    return pc.and_(is_within, pc.equal(batch.column("queueId"), segment.queue_id))


def _other_rows(rows: pa.Table, part: _FilePart, segment: _Segment) -> list[ReceiptFault]:
    """Rows of a queue that are not those of the copy that has what was signed."""
    rows = rows.sort_by("queueOffset").combine_chunks()
    offsets = rows.column("queueOffset").to_numpy()
    signed = _signed_rows(part, segment, _runs(offsets))
    known = signed.column("queueOffset").to_numpy()
    at = np.searchsorted(known, offsets)
    if len(known) == 0 or not np.array_equal(known[np.minimum(at, len(known) - 1)], offsets):
        raise StorageError(
            "messages of the log were deleted while they were compared: run it again",
            copy=segment.copy.name,
            topic=part.file.topic,
            queue=segment.queue_id,
        )
    signed = signed.take(pa.array(at)).combine_chunks()
    names: dict[int, list[str]] = {}
    for name in _COMPARED:
        for row in np.flatnonzero(_unlike(name, rows.column(name), signed.column(name))).tolist():
            names.setdefault(row, []).append(name)
    return [
        ReceiptFault(
            part.place,
            ReceiptFaultKind.CHANGED,
            part.file.topic,
            segment.queue_id,
            int(offsets[row]),
            int(offsets[row]) + 1,
            f"{', '.join(found)} of the row not what was signed, which {segment.copy.name} has",
        )
        for row, found in sorted(names.items())
    ]


def _signed_rows(part: _FilePart, segment: _Segment, runs: Sequence[tuple[int, int]]) -> pa.Table:
    """Rows of messages that were signed, by their offsets."""
    ranges = [MessageRange(part.file.topic, segment.queue_id, *run) for run in runs]
    batches: list[pa.RecordBatch] = []
    with segment.copy.opened() as source:
        for found in source.read(ranges, fail_on_data_loss=True):
            rows = columns_of(found, inflate=part.inflate)
            batches += [one.batch(_COMPARED) for one in rows.parts()]
    if not batches:
        return pa.table({"queueOffset": pa.array([], pa.int64())})
    return pa.Table.from_batches(batches).sort_by("queueOffset")


def _unlike(name: str, one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which rows of a column are not the same in both tables."""
    left, right = one.combine_chunks(), other.combine_chunks()
    if name == "properties":
        marked = np.ones(len(left), np.bool_)
        left, right = property_texts(left, marked), property_texts(right, marked)
    same = pc.fill_null(pc.equal(left, right.cast(left.type)), False)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    found: npt.NDArray[np.bool_] = ~pc.or_(same, both_null).to_numpy(zero_copy_only=False)
    return found
