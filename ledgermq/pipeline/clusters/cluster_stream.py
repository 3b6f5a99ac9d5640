"""Micro-batches of a stream over several groups: those of a stream of each group, together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
)

from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.pipeline.batch_reader import RangesPartition
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.clusters.cluster_groups import (
    ClusterGroups,
    GroupPlace,
    dead_group,
    without_options,
)
from ledgermq.pipeline.clusters.group_offsets import StreamedOffsets, groups_document, groups_in
from ledgermq.pipeline.queue_ranges import (
    MessageRange,
    Offsets,
    Queue,
    checkpoint_table,
    queue_document,
)
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source_options import GroupChoice, SourceOptions
from ledgermq.pipeline.stream_reader import AGAIN_S, RangesReader, StreamReader, limited

Result = TypeVar("Result")

ANSWER_MS = 10_000
"""Longest wait for the answer to one question of the driver; what fails is asked again for
``timeoutMs``."""

logger = logging.getLogger(__name__)
Groups = dict[str, StreamedOffsets]

GroupQueue = tuple[str, str, int]
"""Group, topic and queue id."""

LOOK_S_MAX = 1.0
"""A group that answers does so in this time; one that does not has no rows in the next batch."""

NOTHING = StreamedOffsets("", {})


class StreamedGroup:
    """A ``StreamReader`` of one group, which its own thread alone calls.

    Attributes:
        nodes: addresses of the group's nodes.
        silent_since: since when it has not answered, by ``time.monotonic``; None: it has.
        failure: why.
        is_told: somebody was told that it does not answer.
    """

    def __init__(self, options: SourceOptions, columns: ChosenColumns, name: str, nodes: str):
        """Nothing is asked yet."""
        self.name = name
        self.nodes = nodes
        self.silent_since: float | None = None
        self.failure: LedgerError | None = None
        self.is_told = False
        self._timeout_s = options.timeout_ms / 1_000
        answer_ms = min(ANSWER_MS, options.timeout_ms)
        self._reader = StreamReader(options.of_group(name, nodes, answer_ms=answer_ms), columns)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"spark-{name}")
        self._look: Future[Offsets] | None = None
        self._asked_at = 0.0
        self._had_left = False
        self._is_closing = False

    @property
    def bounds(self) -> dict[Queue, MessageRange]:
        """What its queues held when they were looked at last."""
        return self._reader.bounds

    def begin_look(self, begins: Offsets, *, has_left: bool) -> Future[Offsets]:
        """Have it asked where its queues end; one question is under way at once."""
        if self._look is None:
            start = dict(queue_document(begins))
            self._asked_at, self._had_left = time.monotonic(), has_left
            self._look = self._thread.submit(
                lambda: checkpoint_table(self._reader.latestOffset(start, ReadAllAvailable()))
            )
        return self._look

    def take_look(self) -> tuple[Offsets, bool] | None:
        """Where its queues end, and whether it had left when it was asked; None: no answer yet.

        Raises:
            LedgerError: it has answered what will not pass by itself.
        """
        look = self._look
        assert look is not None, "it was asked"
        if not look.done():
            self._note_silence(self._asked_at, None)
            return None
        self._look = None
        try:
            ends = look.result()
        except LedgerError as error:
            self._raise_lasting(error)
            self._note_silence(self._asked_at, error)
            return None
        self.silent_since, self.failure, self.is_told = None, None, False
        return ends, self._had_left

    def ask(self, question: Callable[[StreamReader], Result]) -> Future[Result]:
        """Have it asked, again and again for ``timeoutMs`` while it does not answer."""
        until = time.monotonic() + self._timeout_s

        def asked() -> Result:
            while True:
                try:
                    return question(self._reader)
                except LedgerError as error:
                    self._raise_lasting(error)
                    if self._is_closing or time.monotonic() >= until:
                        raise
                time.sleep(AGAIN_S)

        return self._thread.submit(asked)

    def close(self) -> None:
        """Let go of it, once it has answered what it was asked."""
        self._is_closing = True
        self._thread.submit(self._reader.stop)
        self._thread.shutdown(wait=False)

    def is_dead(self) -> bool:
        """Whether it has not answered for ``timeoutMs``."""
        since = self.silent_since
        return since is not None and time.monotonic() - since >= self._timeout_s

    def _note_silence(self, since: float, failure: LedgerError | None) -> None:
        if self.silent_since is None:
            self.silent_since = since
        self.failure = failure or self.failure

    def _raise_lasting(self, error: LedgerError) -> None:
        if not error.retriable:
            error.details["broker_group"] = self.name
            raise error


class ClusterStreamReader(RangesReader):
    """One query's view of the groups; the driver has one, and each task one."""

    def __init__(self, options: SourceOptions, columns: ChosenColumns) -> None:
        assert options.groups is not None, "groups are chosen"
        super().__init__(options, columns)
        self._choice: GroupChoice = options.groups
        self._cluster: ClusterGroups | None = None
        self._readers: dict[str, StreamedGroup] = {}
        self._available: set[str] | None = None
        self._refused: set[str] = set()

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins.

        Raises:
            LedgerError: the options do not fit what there is, or it cannot be read; a group does
                not answer, and that is to fail, or the query does not begin at its first message.
        """
        self._follow(self._opened().all_places())
        needed = self._choice.fails_on_dead or {
            name for name in self._readers if not self._begins_at_first(name)
        }
        found = self._ask_all(StreamReader.initialOffset, needed=needed)
        offsets = {name: checkpoint_table(document) for name, document in found.items()}
        if len(offsets) == len(self._readers):
            queues = {queue for one in offsets.values() for queue in one}
            self._options.choice.check_found(queues)
        groups = {name: self._group(name, one) for name, one in offsets.items() if one}
        return groups_document(groups)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, object], limit: ReadLimit
    ) -> dict[str, object]:
        """Where the next batch ends; ``start`` when there is nothing new.

        Raises:
            DataLossError: a queue has gone, or ends before ``start``, and that is to fail.
            NotLeaderError: a group has not answered for as long as it may, and that is to fail.
        """
        begins = groups_in(start)
        places = self._opened().places()
        left = self._follow(places, begins)
        found = self._ends_available(begins, left) if self._available is not None else None
        if found is None:
            found = self._looked(begins, left)
        ends = {name: offsets for name, (offsets, _) in found.items()}
        if isinstance(limit, ReadMaxRows):
            ends = self._limited(begins, ends, limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise ConfigError("read limit is not one that the source knows", limit=repr(limit))
        groups = dict(begins)
        for name, offsets in ends.items():
            before = begins.get(name, NOTHING)
            reached, had_left = found[name]
            is_finished = had_left and reached == before.offsets
            if is_finished:
                logger.warning("group has left and is finished: broker_group=%s", name)
            if offsets != before.offsets or is_finished != before.is_finished:
                groups[name] = self._group(name, offsets, is_finished=is_finished)
        return start if groups == begins else groups_document(groups)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """All that is there now is read, and nothing that comes later.

        Raises:
            NotLeaderError: a group does not answer, and that is to fail.
        """
        self._follow(self._opened().all_places())
        prepare = StreamReader.prepareForTriggerAvailableNow
        self._available = set(self._ask_all(prepare, needed=self._choice.fails_on_dead))
        self._refused = set(self._readers) - self._available

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Where the queues ended when they were looked at, for the query's progress."""
        return groups_document(
            {
                name: StreamedOffsets(
                    "", {queue: held.end for queue, held in reader.bounds.items()}
                )
                for name, reader in self._readers.items()
                if reader.bounds
            }
        )

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[InputPartition]:
        """What each task of the batch from ``start`` to ``end`` reads; of one group each.

        Raises:
            NotLeaderError: a group that the batch needs has not answered for ``timeoutMs``.
            DataLossError: some of it has been deleted, or is of a group that is not read any more,
                and that is to fail.
        """
        starts, ends = groups_in(start), groups_in(end)
        self._follow(self._opened().places(), ends)
        asked = {}
        for name, group in ends.items():
            before = starts.get(name, NOTHING).offsets
            if group.offsets == before:
                continue
            reader = self._readers.get(name)
            if reader is None:
                self._give_up(name, before, group.offsets)
                continue
            words = queue_document(before), queue_document(group.offsets)
            asked[name] = reader.ask(partial(_planned, words=words))
        parts: list[InputPartition] = []
        for name, planned in asked.items():
            reader = self._readers[name]
            place = GroupPlace(name, reader.nodes)
            try:
                parts += [RangesPartition(ranges, place) for ranges in planned.result()]
            except LedgerError as error:
                if error.retriable:
                    raise dead_group(name, error) from error
                raise
        return parts

    def stop(self) -> None:
        """Let go of all groups."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _opened(self) -> ClusterGroups:
        if self._cluster is None:
            self._cluster = ClusterGroups(self._options)
        return self._cluster

    def _follow(self, places: Mapping[str, str], begins: Groups | None = None) -> set[str]:
        """Have a reader of each group that is to be read; which of them have left the cluster."""
        wanted = dict(places)
        left = set()
        for name, group in (begins or {}).items():
            if name not in places and not group.is_finished and self._choice.has(name):
                reader = self._readers.get(name)
                known = self._opened().with_keys(group.nodes)
                wanted[name] = reader.nodes if reader is not None else known
                left.add(name)
        for name, nodes in wanted.items():
            reader = self._readers.get(name)
            if reader is not None and reader.nodes != nodes and self._available is None:
                # The group is at other hosts.
                self._readers.pop(name).close()
                reader = None
            if reader is None:
                self._readers[name] = StreamedGroup(self._options, self._columns, name, nodes)
        for name in set(self._readers) - set(wanted):
            self._readers.pop(name).close()
        return left

    def _group(self, name: str, offsets: Offsets, *, is_finished: bool = False) -> StreamedOffsets:
        return StreamedOffsets(without_options(self._readers[name].nodes), offsets, is_finished)

    def _begins_at_first(self, name: str) -> bool:
        """Whether a query without a checkpoint reads all that the group has."""
        place = self._choice.starting.get(name, self._options.starting)
        return place == "earliest" and self._options.starting_ms is None

    def _ask_all(
        self, question: Callable[[StreamReader], Result], *, needed: bool | set[str]
    ) -> dict[str, Result]:
        """What each group says, waited for as long as ``timeoutMs``; those that say nothing lack.

        Raises:
            NotLeaderError: one of those that are needed says nothing.
        """
        asked = {name: reader.ask(question) for name, reader in self._readers.items()}
        found: dict[str, Result] = {}
        for name, future in asked.items():
            try:
                found[name] = future.result()
            except LedgerError as error:
                if not error.retriable:
                    raise
                if needed is True or (needed and name in needed):
                    raise dead_group(name, error) from error
                self._say_dead(name, error)
        return found

    def _looked(self, begins: Groups, left: set[str]) -> dict[str, tuple[Offsets, bool]]:
        """Where the groups that answer end, and whether one had left when it was asked."""
        looks = {
            name: reader.begin_look(begins.get(name, NOTHING).offsets, has_left=name in left)
            for name, reader in self._readers.items()
        }
        speaking = [
            look for name, look in looks.items() if self._readers[name].silent_since is None
        ]
        wait(speaking, timeout=LOOK_S_MAX)
        found: dict[str, tuple[Offsets, bool]] = {}
        for name, reader in self._readers.items():
            looked = reader.take_look()
            if looked is not None:
                found[name] = looked
                continue
            if not reader.is_dead():
                continue
            # One that was never heard is read from its first message, whenever it comes.
            is_missed = name in begins or self._choice.names is not None
            if is_missed and self._choice.fails_on_dead:
                raise dead_group(name, reader.failure)
            if not reader.is_told:
                reader.is_told = True
                self._say_dead(name, reader.failure)
        return found

    def _ends_available(self, begins: Groups, left: set[str]) -> dict[str, tuple[Offsets, bool]]:
        """Where the groups ended when the query began, which ends by itself."""
        assert self._available is not None
        late = left - self._available - self._refused
        asked = {}
        for name in sorted((self._available | late) & set(self._readers)):
            start = queue_document(begins.get(name, NOTHING).offsets)
            question = partial(_ended, start=start, prepares=name in late)
            asked[name] = self._readers[name].ask(question)
        found: dict[str, tuple[Offsets, bool]] = {}
        for name, future in asked.items():
            try:
                found[name] = future.result(), name in left
                self._available.add(name)
            except LedgerError as error:
                if not error.retriable:
                    raise
                if self._choice.fails_on_dead:
                    raise dead_group(name, error) from error
                self._say_dead(name, error)
                self._available.discard(name)
                self._refused.add(name)
        return found

    def _limited(
        self, begins: Groups, ends: Mapping[str, Offsets], rows_max: int
    ) -> dict[str, Offsets]:
        """``ends``, with so many rows at most before them, shared by what each queue lacks."""
        held: dict[GroupQueue, MessageRange] = {
            (name, *queue): range_
            for name in ends
            for queue, range_ in self._readers[name].bounds.items()
        }
        starts: dict[GroupQueue, int] = {
            (name, *queue): offset
            for name in ends
            for queue, offset in begins.get(name, NOTHING).offsets.items()
        }
        reached: dict[GroupQueue, int] = {
            (name, *queue): end for name, offsets in ends.items() for queue, end in offsets.items()
        }
        found: dict[str, Offsets] = {name: {} for name in ends}
        for (name, topic, queue_id), end in limited(starts, reached, held, rows_max).items():
            found[name][topic, queue_id] = end
        return found

    def _give_up(self, name: str, begins: Offsets, ends: Offsets) -> None:
        """A batch wants messages of a group that the options do not choose any more."""
        report_loss(
            fail=self._options.fail_on_data_loss,
            broker_group=name,
            missing=sum(end - begins.get(queue, 0) for queue, end in ends.items()),
        )

    def _say_dead(self, name: str, failure: LedgerError | None) -> None:
        logger.warning(
            "group does not answer, and the others are read: broker_group=%s: %s", name, failure
        )


def _planned(
    reader: StreamReader, *, words: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]
) -> list[tuple[MessageRange, ...]]:
    parts = reader.partitions(*words)
    return [part.ranges for part in parts if isinstance(part, RangesPartition)]


def _ended(reader: StreamReader, *, start: dict[str, dict[str, int]], prepares: bool) -> Offsets:
    if prepares:
        reader.prepareForTriggerAvailableNow()
    return checkpoint_table(reader.latestOffset(start, ReadAllAvailable()))
