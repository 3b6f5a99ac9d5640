"""Check of a whole store directory, read-only: the store compared with itself.

Plain, DLedger and upgraded stores of any size, of ours and of RocketMQ, stopped or copied while
they ran. Of one that runs, what lies behind the committed end is not judged, and its derived files
are compared up to where they were dispatched when the check began.

RocketMQ puts a message into light queues besides its own: property ``INNER_MULTI_DISPATCH`` has
their names, ``INNER_MULTI_QUEUE_OFFSET`` its number in each, both separated by commas
(``MultiDispatch``, ``ConsumeQueue.multiDispatchLmqQueue``). No node reads or mends these queues, so
all that is found is noted and nothing more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from ledgermq.formats.arrays import BATCH_UNIT, UNIT
from ledgermq.formats.batch_unit import BATCH_FILE_SIZE, BATCH_FOLDER, Numbers
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE, decode_index_item
from ledgermq.formats.findings import FROM_PEER, Finding, Severity
from ledgermq.formats.index_file import IndexHeader, IndexLayout, fresh_header
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.inner_batch import numbers_of
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.formats.records.properties import TAGS
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.ids import NO_INDEX
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.repair.check import check_files
from ledgermq.repair.check.check_index import (
    IndexSummary,
    IndexTask,
    check_index_file,
    find_geometry,
    index_files,
    read_header,
)
from ledgermq.repair.check.check_units import (
    QueueKey,
    QueueReport,
    QueueTask,
    check_queue,
    describe_wrong_units,
    queue_log_end,
)
from ledgermq.repair.check.file_family import FileFamily, FoundFile, derived, find_family, size_of
from ledgermq.repair.check.log_walk import (
    LogFileReport,
    LogFileTask,
    WalkRules,
    check_items_behind,
    check_log_file,
    check_seams,
)
from ledgermq.repair.file_workers import FileWorkers, Runner, Told, Work
from ledgermq.store.files.file_names import (
    is_index_name,
    is_topic_name,
    own_names,
    queue_files,
    queue_folders,
)
from ledgermq.store.files.properties_file import decode_dledger_checkpoint
from ledgermq.store.index.tag_items import has_tag_items
from ledgermq.store.log.entry_files import first_entry_position
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_end import (
    CHUNK_UNITS,
    PREFILL_SIZE,
    QueueEnd,
    file_starts,
    find_end,
    read_units,
)
from ledgermq.store.queues.queue_files import FILE_SIZE, found_batch_file_size
from ledgermq.store.recovery import log_checkpoint
from ledgermq.store.store_directory import dledger_folder, log_in, names_in, open_directory

QUEUES = "INNER_MULTI_DISPATCH"
OFFSETS = "INNER_MULTI_QUEUE_OFFSET"
_SEPARATOR = ","
_LEFT = "RocketMQ's queue, of no topic here: it is left alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignQueueTask:
    """One such queue, and the log whose messages its units point to.

    Attributes:
        queue: as of a topic's queue; no unit of it counts as right yet.
        log: the parts of the log, the oldest first.
    """

    queue: QueueTask
    log: Sequence[FileFamily]


def check_foreign_queue(task: ForeignQueueTask) -> QueueReport:
    """Look at all units of the queue, and at the message of each that the log still has."""
    with ExitStack() as opened:
        log = _Log(task.log, opened)
        matched = [(at, at + 1) for at in _right_units(task.queue, log)]
    report = check_queue(replace(task.queue, matched=matched))
    report.findings = [
        replace(one, severity=Severity.NOTE, remedy=_LEFT) for one in report.findings
    ]
    return report


def is_unit_of(
    message: Message, name: str, queue_id: int, offset: int, tags: int, *, any_tags: bool
) -> bool:
    """Whether the unit at ``offset`` of a queue is one that ``message`` has there.

    Args:
        any_tags: the code of the tags is not looked at, for it may be an address instead.
    """
    properties = message.parsed_properties()
    if not (any_tags or message.topic == DELAY_TOPIC or tags == _tags_code(properties)):
        return False
    if (message.topic, message.queue_id, message.queue_offset) == (
        name, queue_id, offset,
    ):  # fmt: skip
        return True
    names = properties.get(QUEUES, "").split(_SEPARATOR)
    offsets = properties.get(OFFSETS, "").split(_SEPARATOR)
    # A light queue is always number 0.
    return queue_id in (0, message.queue_id) and (name, str(offset)) in zip(
        names, offsets, strict=False
    )


def _tags_code(properties: Mapping[str, str]) -> int:
    tags = properties.get(TAGS)
    return java_hash(tags) if tags else 0


def _right_units(task: QueueTask, log: _Log) -> Iterator[int]:
    """Queue offsets of the units that are of a message which says so."""
    name, queue_id = task.folder.parent.name, int(task.folder.name)
    family, _ = find_family(
        task.folder, root=task.root, file_size=task.file_size, severity=Severity.NOTE, remedy=""
    )
    has_extensions = (task.root / "consumequeue_ext").is_dir()
    for file in family.files:
        try:
            with open(file.path, "rb") as opened:
                content = opened.read(file.size - file.size % UNIT_SIZE)
        except FileNotFoundError:
            # Deleted since, for the age of its messages.
            continue
        units = np.frombuffer(content[: len(content) // UNIT_SIZE * UNIT_SIZE], UNIT)
        used = np.flatnonzero((units["size"] > 0) & (units["size"] != PREFILL_SIZE))
        for at in used.tolist():
            position, size, tags = units[at].item()
            message = log.message_at(position, size)
            offset = file.start // UNIT_SIZE + at
            if message is not None and is_unit_of(
                message, name, queue_id, offset, tags, any_tags=has_extensions
            ):
                yield offset


class _Log:
    """The files of a log, one of which is open: units of a queue ascend by position."""

    def __init__(self, parts: Sequence[FileFamily], opened: ExitStack) -> None:
        self._parts = parts
        self._path = ""
        self._fd: int | None = None
        opened.callback(self._close)

    def message_at(self, position: int, size: int) -> Message | None:
        """The message there, of that size; None where there is none."""
        for family in self._parts:
            file = family.file_at(position)
            fd = None if file is None else self._opened(file.path)
            if file is None or fd is None:
                continue
            at = position - file.start
            # A unit may say any size, and as much memory would be taken for it.
            if size > file.size - at or os.pread(fd, 4, at) != size.to_bytes(4, "big"):
                return None
            try:
                message = decode_message(memoryview(os.pread(fd, size, at)), check_crc=False)
            except CorruptLogError:
                return None
            return message if message.physical_offset == position else None
        return None

    def _opened(self, path: str) -> int | None:
        if path != self._path:
            self._close()
            # Deleted since, for the age of its messages.
            with suppress(FileNotFoundError):
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._path = path
        return self._fd

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def check_batches(
    root: Path, log: LogReader, ends: dict[tuple[str, int], int]
) -> Iterator[Finding]:
    """What is wrong with the queues of batches of the store in ``root``, one finding a queue.

    Args:
        ends: gets the queue offsets behind their last messages.

    Raises:
        StorageError: a file cannot be read.
    """
    folder = root / BATCH_FOLDER
    file_size = found_batch_file_size(root) or BATCH_FILE_SIZE
    for directory in queue_folders(folder):
        name = directory.parent.name, int(directory.name)
        try:
            queue = find_end(directory, file_size, whole_below=None, unit=BATCH_UNIT)
            _check(queue, log, name)
        except CorruptLogError as error:
            path = str(directory.relative_to(root))
            yield derived(path, None, str(error))
            continue
        ends[name] = queue.next_offset


def _check(queue: QueueEnd, log: LogReader, name: tuple[str, int]) -> None:
    """Compare all units of a queue with the log, as far as it goes back.

    Raises:
        CorruptLogError: a unit is not that of a message of the queue.
    """
    for start in file_starts(Path(queue.directory), queue.file_size):
        first = start // queue.unit.itemsize
        for at in range(0, min(queue.units_per_file, queue.end - first), CHUNK_UNITS):
            count = min(CHUNK_UNITS, queue.units_per_file - at, queue.end - first - at)
            for unit in read_units(queue.path_of(start), at, count, queue.unit):
                position, size = int(unit["position"]), int(unit["size"])
                if not log.first <= position < log.end:
                    continue
                message = log.message_at(position, size, check_crc=False)
                numbers = Numbers(int(unit["base"]), int(unit["count"]))
                found = numbers_of(message)
                # RocketMQ's DLedger broker counts one message in each record.
                is_right = numbers in {found, found._replace(messages=1)}
                if (message.topic, message.queue_id) != name or not is_right:
                    raise CorruptLogError(
                        "unit points to no message of its queue",
                        position=position,
                        **numbers._asdict(),
                    )


_ALL = 1 << 62

_TRIES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What the directory does not tell; ``None`` is found out.

    Attributes:
        jobs: processes; 1 is this one.
    """

    self_id: str | None = None
    log_file_size: int | None = None
    queue_file_size: int | None = None
    index_layout: IndexLayout | None = None
    message_delay_level: str = StoreSection().message_delay_level
    jobs: int = 1


@dataclass(slots=True)
class CheckedStore:
    """What was read and what was found; counts are of the whole store."""

    findings: list[Finding] = field(default_factory=list)
    log_files: int = 0
    log_bytes: int = 0
    records: int = 0
    unprotected: int = 0
    queues: int = 0
    units: int = 0
    stale_units: int = 0
    index_files: int = 0
    keys: int = 0
    first: int = 0
    end: int = 0
    last_index: int = -1
    committed_end: int = 0


def check_store(
    root: Path,
    options: CheckOptions,
    *,
    told: Callable[[int, int], None] = lambda _done, _all: None,
    runner: Runner | None = None,
) -> CheckedStore:
    """Compare everything in ``root`` that can be compared.

    Args:
        runner: has the files looked at instead of processes of this machine.
        told: bytes of the log that were read, and bytes that there are; called now and then.

    Raises:
        ConfigError: no store, or several DLedger logs.
        StorageError: something cannot be read.
    """
    for _ in range(_TRIES_MAX - 1):
        try:
            return _Check(root, options, told, runner).run()
        except StorageError as error:
            # A running node deletes its oldest files, maybe the one that was just looked at, or
            # all that there were when the check began.
            if error.errno != errno.ENOENT:
                raise
    return _Check(root, options, told, runner).run()


class _Check:
    def __init__(
        self,
        root: Path,
        options: CheckOptions,
        told: Callable[[int, int], None],
        runner: Runner | None,
    ) -> None:
        self._run = runner or FileWorkers(options.jobs, told)
        self._root = root
        self._options = options
        names = names_in(root)
        self._dledger = dledger_folder(root, names, options.self_id)
        if self._dledger is None and "commitlog" not in names:
            raise ConfigError(
                "neither commitlog/ nor dledger-*/ in it: not a store directory",
                directory=str(root),
            )
        self._open_end = "abort" in names
        self._is_ours = "ledgermq" in names
        self._has_extensions = "consumequeue_ext" in names
        self._checked = CheckedStore()
        self._parts: list[tuple[FileFamily, int]] = []
        self._items: FileFamily | None = None
        self._index_tasks: list[IndexTask] = []
        self._queue_file_size = options.queue_file_size or 0

    def run(self) -> CheckedStore:
        checked = self._checked
        promises = check_files.read_promises(self._root, self._dledger)
        self._find_families()
        checked.committed_end = self._committed_end(promises.committed)
        queues = self._queue_folders()
        required = self._required_end(queues, promises.dispatched)
        headers, layout = self._check_index()
        keys_end = self._keys_end(headers, promises.dispatched, required)
        reports = self._check_log(headers, layout, required, keys_end)
        matched, damaged = self._take(reports)
        self._check_ends(reports)
        ends = self._check_queues(queues, matched, damaged, required)
        last_unit = max((report.last_unit for report in reports), default=(-1, 0))
        facts = check_files.LogFacts(
            end=checked.end,
            last_index=checked.last_index,
            committed_end=checked.committed_end,
            last_unit_time=last_unit[1],
            index_times=frozenset(one.header.end_timestamp for one in headers),
            open_end=self._open_end,
        )
        self._check_files(promises, facts, ends)
        return checked

    def _find_families(self) -> None:
        root, checked = self._root, self._checked
        saved = log_checkpoint.read(root / "ledgermq" / "log-checkpoint")
        size = self._options.log_file_size or (saved.file_size if saved else None)
        families: list[tuple[Path, int]] = [(root / "commitlog", 0)]
        if self._dledger is not None:
            families.append((self._dledger / "data", HEADER_SIZE))
        for folder, header_size in families:
            family, findings = find_family(
                folder, root=root, file_size=size, severity=Severity.DAMAGE, remedy=FROM_PEER
            )
            checked.findings += findings
            if family.files:
                self._parts.append((family, header_size))
        if self._dledger is not None:
            self._items, findings = find_family(
                self._dledger / "index",
                root=root,
                file_size=None,
                severity=Severity.DAMAGE,
                remedy=FROM_PEER,
            )
            checked.findings += findings
        if self._parts:
            family, header_size = self._parts[0]
            first = family.files[0]
            checked.first = first.start + self._begin(first, header_size)

    def _committed_end(self, content: bytes | None) -> int:
        """Position behind the last entry that is known to be committed; 0 if none is."""
        if self._dledger is None or self._items is None:
            return 0
        try:
            committed = decode_dledger_checkpoint(content or b"").committed
            file = self._items.file_at(committed * ITEM_SIZE)
            if committed == NO_INDEX or file is None:
                return 0
            with Path(file.path).open("rb") as opened:
                opened.seek(committed * ITEM_SIZE - file.start)
                found = opened.read(ITEM_SIZE)
            item = decode_index_item(memoryview(found), index=committed)
        except CorruptLogError:
            # Told where these files are looked at.
            return 0
        return 0 if item is None else item.position + item.size

    def _queue_folders(self) -> list[tuple[QueueKey, Path]]:
        """Folders of queues; what is none is told."""
        root = self._root / "consumequeue"
        found: list[tuple[QueueKey, Path]] = []
        foreign: list[Path] = []
        for folder in queue_folders(root, foreign=foreign):
            found.append(((os.fsencode(folder.parent.name), int(folder.name)), folder))
        for path in foreign:
            self._note(str(path.relative_to(self._root)), "neither a topic nor a queue")
        if not self._queue_file_size:
            sizes = [size_of(path) for path in queue_files(root)]
            # Others are of files that somebody has cut.
            known = [size for size in sizes if size and size % UNIT_SIZE == 0] or [FILE_SIZE]
            self._queue_file_size = max(known, key=known.count) if sizes else 0
        return found

    def _required_end(
        self, queues: Sequence[tuple[QueueKey, Path]], dispatched: bytes | None
    ) -> int:
        """Messages before this position must have units."""
        committed = self._checked.committed_end
        saved = dispatch_checkpoint.decode(dispatched) if dispatched is not None else None
        if not self._open_end:
            # In a stop in order the writer notes what is committed, and ends; raft commits what
            # comes from the members after that, and the dispatcher, which ends last, takes it.
            behind = saved.position if saved is not None else 0
            return max(committed, behind) if committed else _ALL
        if saved is not None:
            return saved.position
        # RocketMQ dispatches message by message: what is before the last unit has its own, too.
        ends = [queue_log_end(folder, self._queue_file_size) for _, folder in queues]
        return max(ends, default=0)

    def _keys_end(
        self, headers: Sequence[IndexSummary], dispatched: bytes | None, required: int
    ) -> int:
        """Messages before this position must have keys."""
        if not self._open_end:
            return required
        saved = dispatch_checkpoint.decode(dispatched) if dispatched is not None else None
        if saved is not None:
            return saved.position
        # Keys of the last message may just be put.
        return headers[-1].header.end_physical_offset if headers else 0

    # Index

    def _check_index(self) -> tuple[list[IndexSummary], IndexLayout]:
        folder = self._root / "index"
        foreign: list[Path] = []
        own_names(folder, is_index_name, foreign=foreign)
        named = index_files(folder)
        for path in foreign:
            self._note(str(path.relative_to(self._root)), "no file of the store: it is left alone")
        self._checked.index_files = len(named)
        layout = self._options.index_layout or find_geometry(folder, is_open=self._open_end)
        if not isinstance(layout, IndexLayout):
            self._checked.findings += [layout] if layout is not None else []
            return [], IndexLayout()
        summaries: list[IndexSummary] = []
        before: IndexHeader | None = None
        for path in named:
            name = str(path.relative_to(self._root))
            size = size_of(path)
            if size is None:
                continue
            if size in (0, layout.item_at(0)) and path == named[-1]:
                # It is just being made, or a crash came in between: the next start removes it.
                self._note(name, "index file that has not its size yet")
                continue
            if size != layout.file_size:
                self._derived(name, "index file of another size", layout.file_size, size)
                continue
            task = IndexTask(path, name, layout)
            growing = self._open_end and path == named[-1]
            try:
                header = read_header(task, again=growing)
            except FileNotFoundError:
                # Deleted since, for the age of its messages.
                continue
            if isinstance(header, Finding):
                self._checked.findings.append(header)
                before = None
                continue
            if not growing:
                self._index_tasks.append(task)
            if not growing and header.index_count <= 1 and header != fresh_header(before):
                self._derived(name, "header of an empty file", fresh_header(before), header)
            known = before.end_timestamp if before is not None else None
            if not summaries and self._checked.first == 0 and path == named[0]:
                known = 0
            if header.index_count > 1:
                summaries.append(IndexSummary(str(path), name, header, known, growing))
            before = header
        return summaries, layout

    def _check_log(
        self, headers: list[IndexSummary], layout: IndexLayout, required: int, keys_end: int
    ) -> list[LogFileReport]:
        root = self._root
        settled = self._checked.committed_end if self._dledger is not None else required
        log = log_in(root, names_in(root), self._options.self_id)
        with_tags = bool(headers) and has_tag_items(root, log, layout)
        of_batches = frozenset(map(os.fsencode, batch_topics(root)))
        tasks = [
            LogFileTask(
                root=root,
                file=file,
                rules=WalkRules(
                    start=file.start,
                    file_size=family.file_size,
                    header_size=header_size,
                    begin=self._begin(file, header_size),
                    settled_end=settled,
                    open_end=self._open_end,
                    name=str(Path(file.path).relative_to(root)),
                ),
                items=self._items if header_size else None,
                queues=root / "consumequeue",
                queue_file_size=self._queue_file_size,
                of_batches=of_batches,
                has_extensions=self._has_extensions,
                index=headers,
                layout=layout,
                with_keys=bool(headers),
                with_tags=with_tags,
                delays_ms=delay_levels_ms(self._options.message_delay_level),
                required_end=required,
                keys_end=keys_end,
            )
            for family, header_size in self._parts
            for file in family.files
        ]
        total = sum(task.file.size for task in tasks)
        self._checked.log_bytes = total
        work: list[Work[LogFileReport | list[Finding]]] = []
        # The index files first: they are large, and few.
        work += [partial(_index_findings, task) for task in self._index_tasks]
        work += [partial(check_log_file, task) for task in tasks]
        reports = []
        for outcome in self._run(work, total):
            if isinstance(outcome, LogFileReport):
                reports.append(outcome)
            else:
                self._checked.findings += outcome
        return reports

    def _begin(self, file: FoundFile, header_size: int) -> int:
        """Where the log begins in its first file."""
        is_first = header_size and file == self._parts[-1][0].files[0]
        if not is_first:
            return 0
        return first_entry_position(Path(file.path).parent, file.start) - file.start

    def _take(
        self, reports: Sequence[LogFileReport]
    ) -> tuple[dict[QueueKey, list[tuple[int, int]]], list[tuple[int, int]]]:
        checked = self._checked
        matched: dict[QueueKey, list[tuple[int, int]]] = {}
        damaged: list[tuple[int, int]] = []
        missing = malformed = 0
        for report in reports:
            checked.findings += report.findings
            checked.records += report.ends.records
            checked.unprotected += report.ends.unprotected
            checked.keys += report.keys
            checked.log_files += not report.gone
            damaged += report.ends.damaged
            if report.gone:
                damaged.append((report.file.start, report.file.start + report.file.size))
            missing += report.keys_missing
            malformed += report.malformed
            for key, ranges in report.units.matched.items():
                matched.setdefault(key, []).extend(ranges)
        if missing:
            text = f"{missing} keys of messages are in no index file"
            if self._is_ours:
                self._derived("index", text)
            else:
                # After a crash RocketMQ deletes the newest file, and does not fill it again.
                self._note("index", text)
        if malformed:
            self._note(
                "consumequeue", f"{malformed} messages cannot be parsed and have no queue unit"
            )
        wrong = [one for report in reports for one in report.units.wrong]
        checked.findings += describe_wrong_units(
            wrong,
            matched,
            queues=self._root / "consumequeue",
            root=self._root,
            file_size=self._queue_file_size,
            live_topics=check_files.live_topics(self._root),
        )
        return matched, damaged

    def _check_ends(self, reports: Sequence[LogFileReport]) -> None:
        checked = self._checked
        checked.end = checked.first
        for number, (family, header_size) in enumerate(self._parts):
            paths = {file.path for file in family.files}
            part = [report for report in reports if report.file.path in paths]
            checked.findings += check_seams(part, self._root)
            used = [report.ends for report in part if report.ends.records]
            if used:
                checked.end = used[-1].end
            if any(report.gone and report.file.start >= checked.end for report in part):
                # Retention, or a log that was replaced by shipped files, has overtaken the check.
                raise StorageError(
                    "files at the end of the log were deleted before they could be read",
                    errno=errno.ENOENT,
                    directory=str(family.directory),
                )
            if header_size:
                checked.last_index = used[-1].index if used else NO_INDEX
            elif number + 1 < len(self._parts):
                self._check_division(family, checked.end, self._parts[number + 1][0])
        if self._items is not None and not self._open_end:
            checked.findings += check_items_behind(
                self._items, self._root, last_index=checked.last_index
            )
        if not self._dledger:
            checked.committed_end = checked.end

    def _check_division(self, family: FileFamily, end: int, follows: FileFamily) -> None:
        if end != follows.files[0].start:
            name = str(Path(family.files[-1].path).relative_to(self._root))
            text = "the plain log does not end where the DLedger log begins"
            self._checked.findings.append(
                Finding(Severity.DAMAGE, name, None, text, follows.files[0].start, end, FROM_PEER)
            )

    def _check_queues(
        self,
        queues: Sequence[tuple[QueueKey, Path]],
        matched: dict[QueueKey, list[tuple[int, int]]],
        damaged: list[tuple[int, int]],
        required: int,
    ) -> dict[tuple[str, int], int]:
        checked = self._checked
        tasks = [
            QueueTask(
                root=self._root,
                folder=folder,
                file_size=self._queue_file_size,
                matched=matched.get(key, ()),
                log_first=checked.first,
                log_end=checked.end,
                judged_end=required if self._open_end else checked.end,
                damaged=damaged,
                open_end=self._open_end,
            )
            for key, folder in queues
        ]
        ends: dict[tuple[str, int], int] = {}
        log = [family for family, _ in self._parts]
        work = [
            partial(_queue_report, task)
            if is_topic_name(task.folder.parent.name)
            else partial(_foreign_report, ForeignQueueTask(queue=task, log=log))
            for task in tasks
        ]
        for (key, _), report in zip(queues, self._run(work, 0), strict=True):
            checked.queues += 1
            checked.units += report.units
            checked.stale_units += report.stale
            checked.findings += report.findings
            ends[key[0].decode(errors="replace"), key[1]] = report.end
        if (self._root / BATCH_FOLDER).is_dir() and self._parts:
            reader = LogReader(open_directory(self._root, self_id=self._options.self_id))
            with closing(reader):
                checked.findings += check_batches(self._root, reader, ends)
        return ends

    def _check_files(
        self,
        promises: check_files.Promises,
        facts: check_files.LogFacts,
        ends: dict[tuple[str, int], int],
    ) -> None:
        findings = self._checked.findings
        root = self._root
        findings += check_files.check_store_checkpoint(root, facts)
        findings += check_files.check_marks(root)
        if self._dledger is not None:
            findings += check_files.check_dledger_checkpoint(
                f"{self._dledger.name}/checkpoint", promises, facts
            )
        findings += check_files.check_own_checkpoints(promises, facts)
        saved = dispatch_checkpoint.decode(promises.dispatched or b"")
        findings += check_files.check_queue_ends(
            root,
            log_first=self._parts[0][0].files[0].start if self._parts else 0,
            dispatched=saved.position if saved is not None else 0,
            queue_ends=None if self._open_end else ends,
        )
        findings += check_files.check_config(
            root / "config", root, queue_ends=None if self._open_end else ends
        )

    def _note(self, name: str, what: str) -> None:
        self._checked.findings.append(Finding(Severity.NOTE, name, None, what))

    def _derived(self, name: str, what: str, expected: object = None, found: object = None) -> None:
        self._checked.findings.append(derived(name, None, what, expected, found))


def _queue_report(task: QueueTask, told: Told) -> QueueReport:
    del told
    return check_queue(task)


def _foreign_report(task: ForeignQueueTask, told: Told) -> QueueReport:
    del told
    return check_foreign_queue(task)


def _index_findings(task: IndexTask, told: Told) -> list[Finding]:
    del told
    return check_index_file(task)
