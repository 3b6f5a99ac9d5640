"""Survey of topics and lags: what the node's own files say of every topic and group, look by look.

There may be ten thousand topics and two thousand groups, and to look at a queue takes some ten
microseconds: each look has a bounded time, first for what is told by name, then for what was looked
at longest ago.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.state.state_reader import StateReader
from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import BusyError, StorageError
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.observer.metrics.samples import Samples
from ledgermq.rules.consumers.group_plans import is_builtin
from ledgermq.rules.tables.archives import ArchiveMark
from ledgermq.store.files.store_paths import StorePaths

TOPICS_LOOK_S = 0.05
"""Seconds of a scrape for topics that are told by name, and as many for the others."""

TOPICS_PER_LOOK_MIN = 50
"""Fewest of the other topics that are looked at, however long that takes: a round has an end."""

APPLY_S = 0.05
"""Seconds of a scrape for commands of the log that changed offsets and topics."""


TIMES_PER_LOOK_MAX = 256
"""Store times read from the log in one scrape, of messages that were not met before."""

TIMES_KEPT_MAX = 50_000


RECENT_UNITS = 32
"""Newest messages of a topic by whose sizes that of all is guessed."""

FIGURES_MAX = 1_000
"""Topics whose last message is looked for at once."""


class PairLag(NamedTuple):
    """What a group has not consumed of a topic: messages, the first of the queue with the most.

    ``consumed``: the sum of its offsets.
    """

    messages: int
    queue_id: int
    offset: int
    consumed: int = 0


class TopicLook(NamedTuple):
    """What was found of a topic: messages that were ever stored in it, and who lacks what."""

    messages: int
    groups: dict[str, PairLag]
    looked_ns: int


class GroupWaits(NamedTuple):
    """What a group has not consumed, of a topic or of all: messages, and since when the first one
    of them waits, epoch ms; None: none does, or its file is gone.
    """

    lag: int
    since_ms: int | None


class TopicFigures(NamedTuple):
    """What a topic holds.

    Attributes:
        held: messages.
        size: their bytes in the log, as many as the newest ones have each: about.
        last_ms: when the last one was stored, epoch ms; None: there is none.
        groups: what each group lacks.
    """

    held: int
    size: int
    last_ms: int | None
    groups: dict[str, GroupWaits]


class Counted(NamedTuple):
    """Sums at one moment.

    Attributes:
        topics: messages that were ever stored.
        groups: what each lacks, and has consumed.
        is_whole: all topics have been looked at.
        is_old: commands are left to apply: groups may have consumed more.
    """

    topics: dict[str, int]
    groups: dict[str, tuple[int, int]]
    is_whole: bool
    is_old: bool


class LagSurvey:
    """Owned by the thread that answers scrapes; it writes nothing, and asks nobody."""

    def __init__(self, page: CursorPage, settings: Settings) -> None:
        """Load the tables.

        Raises:
            ConfigError, CorruptLogError, StorageError: a table cannot be read.
        """
        self._page = page
        self._queues = StorePaths.of(settings).consume_queues
        self._tables = AppliedTables(StorePaths.of(settings).topics.parent, settings)
        self._store = ReadableStore(
            page, settings, lambda _position: None, first_offset=self._tables.first_offset
        )
        self._reader = StateReader(self._store, self._tables, lambda _at, _label, _applied: None)
        self._topics: dict[str, TopicLook] = {}
        self._left: deque[str] = deque()
        self._times: dict[tuple[str, int, int], int] = {}
        self._holds: dict[str, tuple[list[tuple[int, int]], TopicFigures]] = {}

    @property
    def is_behind(self) -> bool:
        """Whether commands of the log are left to apply: what is known of groups is old."""
        return self._reader.is_behind

    def look(self, count: int) -> None:
        """Look at the greatest ``count`` again, and at some of the others.

        Raises:
            LedgerError: a file is not what it should be, or the node is just starting.
        """
        if not self.catch_up():
            return
        began_ns = time.monotonic_ns()
        self._look_at_greatest(count)
        self._look_at_others(began_ns)

    def secret_of(self, user: str) -> str:
        """The secret of a user; empty: there is none of that name, or it has none.

        Raises:
            BusyError: the tables are not those of the log yet.
            LedgerError: a file is not what it should be, or the secret cannot be opened here.
        """
        if not self.catch_up() or self._reader.is_behind:
            raise BusyError("users are not known yet: the node is starting")
        found = self._tables.users.get(user)
        return "" if found is None else self._tables.secrets.opened(user, found.secret)

    def archive_marks(self) -> list[tuple[str, ArchiveMark]]:
        """Marks of all archives, mirrors among them, by name.

        Raises:
            LedgerError: a file is not what it should be, or the node is just starting.
        """
        self.catch_up()
        return list(self._tables.archives)

    def catch_up(self) -> bool:
        """Apply commands of the log for a bounded time; whether the store can be read."""
        self._store.look()
        until = time.monotonic() + APPLY_S
        self._reader.apply()
        while self._reader.is_behind and time.monotonic() < until:
            self._reader.apply()
        return self._store.is_ready

    def put(self, samples: Samples, count: int, rocketmq: tuple[str, ...], *, leads: bool) -> None:
        """Put what was found; names of RocketMQ's at the leader, so that sums are right there."""
        samples.put("ledgermq_topics", len(self._tables.topics))
        samples.put("ledgermq_consumer_groups", len(set(self._tables.offsets.groups())))
        topics = self._greatest_topics(count)
        for topic in topics:
            messages = self._topics[topic].messages
            samples.put("ledgermq_topic_messages_total", messages, topic)
            if leads:
                samples.put("rocketmq_messages_in_total", messages, *rocketmq, topic)
        samples.put("ledgermq_topics_others", max(0, len(self._tables.topics) - len(topics)))
        shown = self.greatest_pairs(count)
        left = TIMES_PER_LOOK_MAX
        now_ms = time.time_ns() // 1_000_000
        for topic, group, waiting in shown:
            samples.put("ledgermq_consumer_lag_messages", waiting.messages, group, topic)
            is_retry = str(topic.startswith(RETRY_PREFIX)).lower()
            labels = (*rocketmq, topic, group, is_retry)
            if leads:
                samples.put("rocketmq_consumer_lag_messages", waiting.messages, *labels)
            stored_ms = self._known_time(topic, waiting)
            if stored_ms is None:
                left -= 1
                stored_ms = self._read_time(topic, waiting) if left >= 0 else -1
            if stored_ms >= 0:
                age_ms = max(0, now_ms - stored_ms) if waiting.messages else 0
                samples.put("ledgermq_consumer_lag_seconds", age_ms / 1_000, group, topic)
                if leads:
                    samples.put("rocketmq_consumer_lag_latency_milliseconds", age_ms, *labels)
        marks = heapq.nsmallest(count, self._tables.archives, key=lambda row: row[1].at_ms)
        committed = self._page.read_committed_position()
        for name, mark in marks:
            samples.put("ledgermq_archive_timestamp_seconds", mark.at_ms / 1_000, name)
            behind = max(0, committed - mark.position)
            samples.put("ledgermq_archive_behind_bytes", behind, name)
        pairs = [one for look in self._topics.values() for one in look.groups.values()]
        others = sum(one.messages for one in pairs) - sum(one.messages for *_, one in shown)
        samples.put("ledgermq_consumer_lag_others_messages", others)
        samples.put("ledgermq_consumer_lag_others_pairs", len(pairs) - len(shown))
        if self._topics:
            oldest_ns = min(look.looked_ns for look in self._topics.values())
            age_s = (time.monotonic_ns() - oldest_ns) / 1e9
            samples.put("ledgermq_consumer_lag_look_age_seconds", age_s)

    def counted(self) -> Counted:
        """The sums of all topics and groups, as they were looked at last."""
        groups: dict[str, tuple[int, int]] = {}
        for look in self._topics.values():
            for group, waiting in look.groups.items():
                lag, consumed = groups.get(group, (0, 0))
                groups[group] = lag + waiting.messages, consumed + waiting.consumed
        topics = {name: look.messages for name, look in self._topics.items()}
        return Counted(topics, groups, is_whole=not self._left, is_old=self.is_behind)

    def topic_figures(self, names: Sequence[str]) -> dict[str, TopicFigures]:
        """Those of at most ``FIGURES_MAX`` topics that were looked at.

        Raises:
            LedgerError: a file is not what it should be, or the node is just starting.
        """
        found = {}
        for name in names[:FIGURES_MAX]:
            look = self._topics.get(name)
            if look is not None:
                groups = {
                    group: self._waits(name, waiting) for group, waiting in look.groups.items()
                }
                found[name] = self._held(name)._replace(groups=groups)
        return found

    def group_waits(self, names: Container[str]) -> dict[str, GroupWaits]:
        """What each of these groups lacks of all topics together.

        Raises:
            LedgerError: a file is not what it should be, or the node is just starting.
        """
        found: dict[str, GroupWaits] = {}
        for topic, look in self._topics.items():
            for group, waiting in look.groups.items():
                if group in names:
                    here, so_far = (
                        self._waits(topic, waiting),
                        found.get(group, GroupWaits(0, None)),
                    )
                    times = [one.since_ms for one in (here, so_far) if one.since_ms is not None]
                    since_ms = min(times, default=None)
                    found[group] = GroupWaits(so_far.lag + here.lag, since_ms)
        return found

    def _waits(self, topic: str, waiting: PairLag) -> GroupWaits:
        if not waiting.messages:
            return GroupWaits(0, None)
        stored_ms = self._known_time(topic, waiting)
        if stored_ms is None:
            stored_ms = self._read_time(topic, waiting)
        return GroupWaits(waiting.messages, None if stored_ms < 0 else stored_ms)

    def _held(self, name: str) -> TopicFigures:
        """What a topic holds, without its groups; read again when its queues have changed."""
        bounds = self._bounds_of(name)
        known = self._holds.get(name)
        if known is not None and known[0] == bounds:
            return known[1]
        held, last, sizes = sum(end - first for first, end in bounds), (-1, -1), [0]
        for number, (first, end) in enumerate(bounds):
            if end == first:
                continue
            begin = max(first, end - RECENT_UNITS)
            units = self._store.units(QueueName(name, number), begin, end - begin)
            if units is not None and len(units) and units["position"][-1] > last[0]:
                last = int(units["position"][-1]), int(units["size"][-1])
                sizes = units["size"].tolist()
        last_ms = self._store.log.store_time(*last) if last[0] >= 0 else -1
        size = held * sum(sizes) // len(sizes)
        figures = TopicFigures(held, size, None if last_ms < 0 else last_ms, {})
        if len(self._holds) >= FIGURES_MAX:
            self._holds.clear()
        self._holds[name] = bounds, figures
        return figures

    def _greatest_topics(self, count: int) -> list[str]:
        return heapq.nlargest(count, self._topics, key=lambda name: self._topics[name].messages)

    def greatest_pairs(self, count: int) -> list[tuple[str, str, PairLag]]:
        """Topics and groups with the most that waits between them, as they were looked at last."""
        pairs = (
            (topic, group, waiting)
            for topic, look in self._topics.items()
            for group, waiting in look.groups.items()
        )
        return heapq.nlargest(count, pairs, key=lambda pair: pair[2].messages)

    def _look_at_greatest(self, count: int) -> None:
        """Those that were looked at longest ago first: in short scrapes it takes several."""
        names = {topic for topic, _, _ in self.greatest_pairs(count)}
        names.update(self._greatest_topics(count))
        until = time.monotonic() + TOPICS_LOOK_S
        for name in sorted(names, key=lambda name: self._topics[name].looked_ns):
            if time.monotonic() >= until:
                return
            self._look_at(name)

    def _look_at_others(self, began_ns: int) -> None:
        """Those that were not looked at since ``began_ns``."""
        until = time.monotonic() + TOPICS_LOOK_S
        if not self._left:
            names = [topic.name for topic in self._tables.topics]
            for gone in self._topics.keys() - set(names):
                del self._topics[gone]
            self._left.extend(names)
        for number in range(len(self._left)):
            if number >= TOPICS_PER_LOOK_MIN and time.monotonic() >= until:
                return
            name = self._left.popleft()
            known = self._topics.get(name)
            if known is None or known.looked_ns < began_ns:
                self._look_at(name)

    def _look_at(self, name: str) -> None:
        """Look at a topic's queues, and at how far each group is in them."""
        if self._tables.topics.get(name) is None:
            self._topics.pop(name, None)
            return
        bounds = self._bounds_of(name)
        groups = {
            owner.group: _waiting(bounds, offsets)
            for owner, offsets in self._tables.offsets.of_topic(name)
            if offsets and not is_builtin(owner.group)
        }
        messages = sum(end for _, end in bounds)
        self._topics[name] = TopicLook(messages, groups, time.monotonic_ns())

    def _bounds_of(self, name: str) -> list[tuple[int, int]]:
        """First offset and end of each queue of a topic."""
        topic = self._tables.topics.get(name)
        count = 0 if topic is None else max(topic.read_queues, topic.write_queues)
        there = self._with_files(name, count)
        return [
            self._store.bounds(QueueName(name, number))[:2] if number in there else (0, 0)
            for number in range(count)
        ]

    def _with_files(self, topic: str, count: int) -> Container[int]:
        """Numbers of a topic's queues that may have a message."""
        if count == 1:
            return range(count)
        # While the log grows each queue that has no files yet would be looked for, in its own
        # folder; RocketMQ's BenchmarkTest has 1,024 of them, and most topics have some.
        try:
            root = self._queues
            if topic in self._store.of_batches:
                root = root.parent / BATCH_FOLDER
            names = [path.name for path in (root / topic).iterdir()]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StorageError.of(
                "cannot list a topic's queues", error, file=self._queues / topic
            ) from error
        return {int(name) for name in names if name.isdecimal()}

    def _known_time(self, topic: str, waiting: PairLag) -> int | None:
        """Store time of the first message that waits, if it is known without reading the log."""
        if not waiting.messages:
            return 0
        return self._times.get((topic, waiting.queue_id, waiting.offset))

    def _read_time(self, topic: str, waiting: PairLag) -> int:
        """The same from the log; -1 when its files are gone."""
        units = self._store.units(QueueName(topic, waiting.queue_id), waiting.offset, 1)
        if units is None or not len(units):
            return -1
        stored_ms = self._store.log.store_time(int(units[0]["position"]), int(units[0]["size"]))
        if len(self._times) >= TIMES_KEPT_MAX:
            self._times.clear()
        self._times[topic, waiting.queue_id, waiting.offset] = stored_ms
        return stored_ms


def _waiting(queues: list[tuple[int, int]], offsets: Mapping[int, int]) -> PairLag:
    """What waits behind ``offsets`` in queues, of each its first offset and its end."""
    messages = most = worst = at = 0
    for queue_id, (first, end) in enumerate(queues):
        begin = max(offsets.get(queue_id, 0), first)
        waits = max(0, end - begin)
        messages += waits
        if waits > most:
            most, worst, at = waits, queue_id, begin
    return PairLag(messages, worst, at, sum(offsets.values()))
