"""Append side of all ConsumeQueues. The dispatcher is the only process that has one.

A block of units goes to its queue with one ``pwrite`` (two at the end of a file). What is there
already is not written again, so a span of the log may be dispatched twice. After a failed write
nothing has changed for a reader: the units are behind the end that was published, and the same
block may be put again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import BATCH_UNIT, UNIT, Units
from ledgermq.formats.batch_unit import (
    BATCH_FILE_SIZE,
    BATCH_FOLDER,
    BATCH_UNIT_SIZE,
    Numbers,
)
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.store.files.descriptor_cache import DescriptorCache, descriptors_allowed, write_fully
from ledgermq.store.files.disk_space import storage_error
from ledgermq.store.files.file_names import (
    is_topic_name,
    own_names,
    queue_folders,
    tell_foreign,
    tell_queues_of_no_topic,
)
from ledgermq.store.files.kept_aside import keep_aside
from ledgermq.store.queues.dispatch_tables import BatchRow, batch_units
from ledgermq.store.queues.queue_end import (
    PREFILL_SIZE,
    QueueEnd,
    count_below,
    file_starts,
    find_end,
    read_units,
)
from ledgermq.store.queues.queue_ends import Queue

FILE_SIZE = 300_000 * UNIT_SIZE
"""RocketMQ's default of ``mappedFileSizeConsumeQueue``, in bytes."""

Offsets = npt.NDArray[np.int64]


_SAMPLED_QUEUES = 64
_READERS = 8
"""Ends are found side by side: what is not in memory is waited for, and costs no processor."""

_QUEUES_A_SIGN = 256


def found_file_size(root: Path, unit_size: int = UNIT_SIZE) -> int | None:
    """Size that most queue files below ``root`` have, None when there are none. One that does not
    hold whole units is of a damaged file.
    """
    sizes: Counter[int] = Counter()
    for directory in islice(queue_folders(root), _SAMPLED_QUEUES):
        sizes.update((directory / name).stat().st_size for name in own_names(directory))
    # A file that is just being made has no bytes yet.
    whole = [size for size in sizes if size and size % unit_size == 0]
    return max(whole, key=lambda size: (sizes[size], size), default=None)


def found_batch_file_size(root: Path) -> int | None:
    """The same of queues of batches of the store in ``root``."""
    return found_file_size(root / BATCH_FOLDER, BATCH_UNIT_SIZE)


class QueueFiles:
    """All queues below one ``consumequeue`` folder, with the names of what is not yet durable.

    A queue whose files are not those of a queue is kept aside, and is to be built again.

    Queues whose names no topic can have here, as light queues, are not built by us: they stay as
    they are, but for units of messages that the log does not have, and files that are too old. The
    messages that name such a topic as their own get their units there nevertheless.

    Queues of batches stand in a folder of their own and have other units (``QueueEnd.unit``).

    Attributes:
        batch_topics: topics whose queues are such.
        lost: queues that were kept aside.
        gaps: units whose queue offset was above the next one of the queue. As in RocketMQ they are
            put at the end nevertheless. Who reports them sets this back.
        dirty_files, dirty_directories: paths that must be synced; ``DispatchBuilder`` takes them.
    """

    def __init__(
        self,
        root: Path,
        *,
        file_size: int,
        aside: Path,
        batch_topics: Collection[str] = (),
        batch_file_size: int | None = None,
        whole_below: int | None = None,
        descriptors_max: int | None = None,
        sign_of_life: Callable[[], None] = lambda: None,
    ) -> None:
        """Find the end of every queue.

        Args:
            root: the folder ``consumequeue``.
            file_size: bytes of a file; as in RocketMQ, rounded up to whole units.
            aside: folder for queues that are none.
            batch_topics: topics whose queues are of batches.
            batch_file_size: bytes of a file of these; None: as there, or RocketMQ's default.
            whole_below: see ``find_end``.
            descriptors_max: most files that stay open; None: as many as the process may afford.
            sign_of_life: called again and again while many queues are looked at or written.

        Raises:
            ConfigError: no queue has files of that size, and there are several.
            StorageError: a file cannot be read, or a queue not be kept aside.
        """
        if file_size <= 0:
            raise ConfigError("mapped_file_size_consume_queue must be positive", value=file_size)
        self.root = root
        self.file_size = -(-file_size // UNIT_SIZE) * UNIT_SIZE
        self.batch_topics = frozenset(map(os.fsencode, batch_topics))
        self._batch_root = root.parent / BATCH_FOLDER
        found = found_batch_file_size(root.parent)
        self._batch_file_size = batch_file_size or found or BATCH_FILE_SIZE
        self.gaps = 0
        self.dirty_files: set[str] = set()
        self.dirty_directories: set[str] = set()
        self._descriptors = DescriptorCache(descriptors_max or descriptors_allowed())
        self._queues: dict[Queue, QueueEnd] = {}
        self._foreign: dict[Queue, QueueEnd] = {}
        """Those whose names no topic can have here."""
        self.sign_of_life = sign_of_life
        self._worked = 0
        self.lost = self._find(aside, whole_below)

    def give_sign(self) -> None:
        """One more queue is worked at: a sign of life for each of many."""
        if self._worked % _QUEUES_A_SIGN == 0:
            self.sign_of_life()
        self._worked += 1

    def _find(self, aside: Path, whole_below: int | None) -> list[str]:
        """Fill the table of queues; the names of those that are none."""

        foreign: list[Path] = []

        def end_or_fault(directory: Path) -> QueueEnd | CorruptLogError:
            try:
                is_of_batches = directory.parent.parent == self._batch_root
                return find_end(
                    directory,
                    self._batch_file_size if is_of_batches else self.file_size,
                    whole_below=whole_below,
                    foreign=foreign,
                    unit=BATCH_UNIT if is_of_batches else UNIT,
                )
            except CorruptLogError as error:
                return error

        for topic in sorted(self.batch_topics):
            # RocketMQ does not start with a topic that has queues of both kinds.
            plain = self.root / os.fsdecode(topic)
            if plain.is_dir():
                keep_aside(plain, aside, reason="its topic has queues of batches")
        directories = list(queue_folders(self.root, foreign=foreign))
        directories += [
            directory
            for directory in queue_folders(self._batch_root, foreign=foreign)
            if os.fsencode(directory.parent.name) in self.batch_topics
        ]
        faults: list[tuple[Path, CorruptLogError]] = []
        with ThreadPoolExecutor(_READERS, thread_name_prefix="queue-ends") as pool:
            for directory, found in zip(
                directories, pool.map(end_or_fault, directories), strict=True
            ):
                self.give_sign()
                key = (os.fsencode(directory.parent.name), int(directory.name))
                is_own = is_topic_name(directory.parent.name)
                if not isinstance(found, CorruptLogError):
                    (self._queues if is_own else self._foreign)[key] = found
                elif is_own:
                    faults.append((directory, found))
                else:
                    foreign.append(directory)
        tell_foreign(foreign)
        tell_queues_of_no_topic(sorted({Path(os.fsdecode(key[0])) for key in self._foreign}))
        plain_faults = [one for one in faults if one[0].parent.parent == self.root]
        if len(plain_faults) > 1 and not self._queues:
            self._refuse_another_size(plain_faults)
        for directory, fault in faults:
            keep_aside(directory, aside, reason=f"queue is built again: {fault}")
        return [str(directory) for directory, _ in faults]

    def _refuse_another_size(self, faults: list[tuple[Path, CorruptLogError]]) -> None:
        """No crash gives all files of all queues one other size: the setting was changed."""
        found = found_file_size(self.root)
        if found != self.file_size and all(
            fault.details.get("size") == found for _, fault in faults
        ):
            raise ConfigError(
                "queue files have another size than the settings say",
                setting="store.mapped_file_size_consume_queue",
                expected=self.file_size,
                found=found,
            )

    @property
    def units(self) -> int:
        """Queue offsets of all ends, summed up: another number when a unit is missing."""
        return sum(queue.end for queue in self._queues.values())

    @property
    def all_units(self) -> int:
        """The same with the queues of no topic."""
        return sum(queue.end for queue in self._all())

    @property
    def has_batches(self) -> bool:
        """Whether a queue of batches has units."""
        return any(one.is_of_batches and not one.empty for one in self._queues.values())

    @property
    def log_end(self) -> int:
        """Position behind the last message that has a unit, -1 when none has."""
        return max((queue.log_end for queue in self._all()), default=-1)

    def end_of(self, topic: bytes, queue_id: int) -> int:
        """Queue offset that the next message of the queue gets."""
        queue = self._known(topic, queue_id)
        return 0 if queue is None else queue.next_offset

    def ends(self) -> dict[Queue, int]:
        """Queue offsets of all ends, of queues that have a unit."""
        return {name: queue.next_offset for name, queue in self._queues.items() if not queue.empty}

    def put_ends(self, ends: Mapping[Queue, int], *, log_start: int) -> int:
        """Let queues that have no unit end where ``ends`` says; how many had none.

        They get units as a queue has whose messages are gone with their log files: prefill units,
        and behind them one of a byte before ``log_start``. Prefill units alone would not do:
        RocketMQ takes 0 + 0x7FFFFFFF, where the last one ends, for how far the queue goes in the
        log, and dispatches nothing before that.

        Args:
            log_start: first byte of the log's first file; nothing is put where that is 0, for
                no message is gone then.

        Raises:
            StorageError: the operating system refused; the same may be put again.
        """
        put = 0
        for name, end in ends.items() if log_start > 0 else ():
            queue = self._known(*name)
            if end <= 0 or (queue is not None and not queue.empty):
                continue
            self.give_sign()
            if queue is None:
                queue = self._new_queue(*name)
            put += 1
            if queue.is_of_batches:
                last = BatchRow(log_start - 1, 1, 0, 0, Numbers(end - 1, 1))
                self._write_behind(queue, batch_units([last]))
                continue
            first = (end - 1) - (end - 1) % (self.file_size // UNIT_SIZE)
            block = np.zeros(end - first, UNIT)
            block["size"] = PREFILL_SIZE
            block[-1] = (log_start - 1, 1, 0)
            self._write(queue, first, block)
            queue.first = first
            queue.end_with(end, block[-1:])
        return put

    def _all(self) -> Iterator[QueueEnd]:
        return chain(self._queues.values(), self._foreign.values())

    def _known(self, topic: bytes, queue_id: int) -> QueueEnd | None:
        return self._queues.get((topic, queue_id)) or self._foreign.get((topic, queue_id))

    def _new_queue(self, topic: bytes, queue_id: int) -> QueueEnd:
        name = os.fsdecode(topic)
        if topic in self.batch_topics:
            queue = QueueEnd(
                f"{self._batch_root}/{name}/{queue_id}",
                unit=BATCH_UNIT,
                file_size=self._batch_file_size,
            )
        else:
            queue = QueueEnd(f"{self.root}/{name}/{queue_id}", file_size=self.file_size)
        (self._queues if is_topic_name(name) else self._foreign)[topic, queue_id] = queue
        return queue

    def append(self, topic: bytes, queue_id: int, queue_offsets: Offsets, units: Units) -> int:
        """Put units of one queue, in the order of the log; how many were not there before.

        Raises:
            StorageError: the operating system refused; nothing counts as put.
        """
        assert len(queue_offsets) == len(units) > 0
        self.give_sign()
        queue = self._known(topic, queue_id) or self._new_queue(topic, queue_id)
        if units["position"][0] < queue.log_end:
            ends = units["position"].astype(np.int64) + units["size"]
            known = int(np.searchsorted(ends, queue.log_end, side="right"))
            queue_offsets, units = queue_offsets[known:], units[known:]
            if not len(units):
                return 0
        first = int(queue_offsets[0])
        if queue.empty and first != 0:
            return self._begin(queue, queue_offsets, units)
        if first != queue.end or not _consecutive(queue_offsets):
            queue_offsets, units = self._straighten(queue.end, queue_offsets, units)
            if not len(units):
                return 0
        self._write_behind(queue, units)
        return len(units)

    def append_batches(self, topic: bytes, queue_id: int, units: Units) -> int:
        """Put units of one queue of a topic in ``batch_topics``, in the order of the log; how many
        messages they have that were not there before. As in RocketMQ the log's order counts alone.

        Raises:
            StorageError: the operating system refused; nothing counts as put.
        """
        self.give_sign()
        queue = self._known(topic, queue_id) or self._new_queue(topic, queue_id)
        kept, end = [], queue.numbers_end
        for row, unit in enumerate(units):
            if unit["position"] < queue.log_end:
                continue
            self.gaps += int(unit["base"]) != end and not queue.empty
            end = int(unit["base"]) + int(unit["count"])
            kept.append(row)
        if not kept:
            return 0
        units = units[kept]
        self._write_behind(queue, units)
        return int(units["count"].sum())

    def _write_behind(self, queue: QueueEnd, units: Units) -> None:
        self._write(queue, queue.end, units)
        queue.end_with(queue.end + len(units), units)

    def append_next(
        self, name: tuple[bytes, int], offset: int, log_end: int, unit: memoryview
    ) -> bool:
        """Put a unit that is the next one of a queue, inside a file that is there; false when
        something of that is not so, and ``append`` must look at it.

        Args:
            name: topic and queue id.
            log_end: position behind its message.

        Raises:
            StorageError: the operating system refused; it does not count as put.
        """
        queue = self._queues.get(name)
        if queue is None or offset != queue.end or log_end <= queue.log_end or queue.empty:
            return False
        assert not queue.is_of_batches, name
        at = offset * UNIT_SIZE
        inside = at % self.file_size
        if inside == 0:
            return False
        path = queue.path_of(at - inside)
        write_fully(self._descriptors.descriptor(path), unit, inside, path)
        self.dirty_files.add(path)
        queue.end, queue.log_end = offset + 1, log_end
        return True

    def replace(self, path: str, offset: int, data: bytes) -> bool:
        """Put units of messages that have some in their place; false if the file is gone.

        Raises:
            StorageError: the operating system refused.
        """
        if not Path(path).exists():
            return False
        write_fully(self._descriptors.descriptor(path), memoryview(data), offset, path)
        self.dirty_files.add(path)
        return True

    def truncate_beyond(self, position: int) -> int:
        """Take away the units of messages from ``position`` on; how many queues had such.

        The slots are zeroed: a unit of a message that is not in the log may not come back with a
        later start.
        """
        return self._truncate(self._queues, position)

    def truncate_foreign(self, log_end: int) -> int:
        """The same for queues that are not built by us: nobody would put the units again."""
        return self._truncate(self._foreign, log_end)

    def _truncate(self, queues: Mapping[Queue, QueueEnd], position: int) -> int:
        cut = 0
        for queue in queues.values():
            self.give_sign()
            if queue.log_end > position:
                self._cut(queue, position, erase=True)
                cut += 1
        return cut

    def rewind(self, position: int) -> None:
        """Let the queues end before the messages from ``position`` on, and leave their slots.

        The same units are going to be put again: readers see no change, and a unit that a killed
        process wrote in part becomes whole.
        """
        for queue in self._queues.values():
            self.give_sign()
            if queue.log_end > position:
                self._cut(queue, position, erase=False)

    def discard_tails(self) -> int:
        """Zero what stands behind the ends; how many queues had something there.

        A power failure may keep a later page and lose an earlier one: the units behind the hole
        would be found again once the hole is filled.
        """
        return sum(self._discard_tail(queue) for queue in self._queues.values())

    def delete_before(self, position: int) -> int:
        """Delete files all of whose units are of messages before ``position``; how many.

        The file in which a queue ends stays, whatever it holds, as in RocketMQ
        (``ConsumeQueue.deleteExpiredFile``).
        """
        deleted = 0
        for queue in self._all():
            self.give_sign()
            units_per_file = queue.units_per_file
            if queue.empty or queue.end - queue.first <= units_per_file:
                continue
            for start in file_starts(Path(queue.directory), queue.file_size):
                end = start // queue.unit.itemsize + units_per_file
                if end >= queue.end:
                    break
                path = queue.path_of(start)
                last = read_units(path, units_per_file - 1, 1, queue.unit)
                if int(last["position"][0]) >= position:
                    break
                self._remove(queue, path)
                queue.first = end
                deleted += 1
        return deleted

    def close(self) -> None:
        """Close the files; what is dirty stays in the page cache."""
        self._descriptors.close()

    def _begin(self, queue: QueueEnd, queue_offsets: Offsets, units: Units) -> int:
        """Begin a queue with another message than number 0: the slots before are prefilled."""
        first = int(queue_offsets[0])
        file_first = first - first % (self.file_size // UNIT_SIZE)
        if not _consecutive(queue_offsets):
            queue_offsets, units = self._straighten(first, queue_offsets, units)
        # One block: a crash between the two would leave a queue of the wrong length. It is not
        # concatenated: numpy would turn the numbers into the machine's byte order.
        block = np.zeros(first - file_first + len(units), UNIT)
        block["size"] = PREFILL_SIZE
        block[first - file_first :] = units
        self._write(queue, file_first, block)
        queue.first = file_first
        queue.end_with(first + len(units), units)
        return len(units)

    def _straighten(self, end: int, queue_offsets: Offsets, units: Units) -> tuple[Offsets, Units]:
        """The units that ``ConsumeQueue.putMessagePositionInfo`` would put, in its order.

        A number below the end is a duplicate and left out; one above it is counted as a gap, and
        the unit put at the end. Number 0 is never compared.
        """
        kept: list[int] = []
        for row, offset in enumerate(queue_offsets.tolist()):
            if offset != 0 and offset < end:
                continue
            self.gaps += offset != end
            kept.append(row)
            end += 1
        return queue_offsets[kept], units[kept]

    def _write(self, queue: QueueEnd, first: int, units: Units) -> None:
        assert units.dtype == queue.unit, units.dtype
        data = memoryview(units.tobytes())
        at = first * queue.unit.itemsize
        done = 0
        while done < len(data):
            start = at + done - (at + done) % queue.file_size
            room = start + queue.file_size - (at + done)
            path = queue.path_of(start)
            fd = self._open(queue, path, at + done == start or queue.empty)
            write_fully(fd, data[done : done + room], at + done - start, path)
            self.dirty_files.add(path)
            done += room

    def _open(self, queue: QueueEnd, path: str, create: bool) -> int:
        if not create:
            return self._descriptors.descriptor(path)
        # Hundreds of new files take seconds where others have the processor, or the disk.
        self.sign_of_life()
        try:
            directory = Path(queue.directory)
            if not directory.is_dir():
                directory.mkdir(parents=True)
                self.dirty_directories.update(
                    map(str, (self.root.parent, directory.parent.parent, directory.parent))
                )
            fd = self._descriptors.descriptor(path, create=True)
            if os.fstat(fd).st_size != queue.file_size:
                os.ftruncate(fd, queue.file_size)
            self.dirty_directories.add(queue.directory)
        except OSError as error:
            raise storage_error("queue file not created", error, file=path) from error
        return fd

    def _cut(self, queue: QueueEnd, position: int, *, erase: bool) -> None:
        units_per_file, size = queue.units_per_file, queue.unit.itemsize
        while queue.end > queue.first:
            start = (queue.end - 1) // units_per_file * units_per_file
            path = queue.path_of(start * size)
            used = queue.end - start
            kept = count_below(path, used, position, queue.unit)
            fd = self._descriptors.descriptor(path)
            last = np.frombuffer(os.pread(fd, size, max(0, kept - 1) * size), queue.unit)
            if kept == 0 or last["size"][0] == PREFILL_SIZE:
                if erase:
                    self._remove(queue, path)
                queue.end = start
                continue
            if erase:
                zeros = memoryview(bytes((used - kept) * size))
                write_fully(fd, zeros, kept * size, path)
                self.dirty_files.add(path)
            queue.end_with(start + kept, last)
            return
        queue.clear()

    def _discard_tail(self, queue: QueueEnd) -> bool:
        self.give_sign()
        found = False
        end = queue.end * queue.unit.itemsize
        # From the last one on: a crash on the way leaves no gap.
        for start in reversed(file_starts(Path(queue.directory), queue.file_size)):
            path = queue.path_of(start)
            if start >= end:
                self._remove(queue, path)
                found = True
            elif start + queue.file_size > end:
                fd = self._descriptors.descriptor(path)
                size = queue.file_size - (end - start)
                if os.pread(fd, size, end - start).count(0) != size:
                    write_fully(fd, memoryview(bytes(size)), end - start, path)
                    self.dirty_files.add(path)
                    found = True
        return found

    def _remove(self, queue: QueueEnd, path: str) -> None:
        self.sign_of_life()
        self._descriptors.forget(path)
        self.dirty_files.discard(path)
        self.dirty_directories.add(queue.directory)
        with refused_as("queue file not removed", why="", file=path):
            Path(path).unlink()


def _consecutive(offsets: Offsets) -> bool:
    count = len(offsets)
    if int(offsets[-1]) - int(offsets[0]) != count - 1:
        return False
    return count < 3 or bool((np.diff(offsets) == 1).all())
