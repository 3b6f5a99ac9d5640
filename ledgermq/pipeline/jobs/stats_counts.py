"""Task of ``stats``: its counts, and how the counts of tasks become one.

Bodies are not touched: their sizes stand in the records' heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.queued_records import columns_of
from ledgermq.pipeline.columns.record_columns import RecordColumns
from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.row_source import open_source
from ledgermq.pipeline.source_options import SourceOptions

_SUB_BITS = 6
_EXACT = 1 << _SUB_BITS
BINS = _EXACT * (63 - _SUB_BITS + 1)
"""Enough for all values that are not negative."""

TAGS_MAX = 200
"""Tags of a topic that are told apart; the others are counted together."""

OTHER_TAGS = "(others)"
"""Where those are counted."""

KEYS_KEPT = 5_000
"""Keys of a topic that a task gives back."""

_KEYS_HELD = 200_000
"""Keys of a topic that a task counts at once, before the rare ones are let go."""

Rates = dict[tuple[str | None, int], list[int]]
"""Messages and bytes of bodies, by tag and bucket."""


class ValueHistogram:
    """How often values were seen, to 1.6 % of them; negative ones count as 0.

    Values below 64 have a bin each; each doubling beyond has 64. Two of them are merged by adding.

    Invariant: ``sum(counts) == count``, and ``least <= largest`` once something was seen.
    """

    __slots__ = ("counts", "largest", "least", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.least = 0
        self.largest = 0
        self.total = 0

    @property
    def count(self) -> int:
        """How many values it has."""
        return sum(self.counts.values())

    def add(self, values: Integers) -> None:
        """Count more values."""
        if not len(values):
            return
        values = np.maximum(values, 0)
        least, largest = int(values.min()), int(values.max())
        is_first = not self.counts
        self.least = least if is_first else min(self.least, least)
        self.largest = max(self.largest, largest)
        self.total += int(values.sum())
        bins, counts = np.unique(bins_of(values), return_counts=True)
        for number, count in zip(bins.tolist(), counts.tolist(), strict=True):
            self.counts[number] = self.counts.get(number, 0) + count

    def merge(self, other: ValueHistogram) -> None:
        """Count what ``other`` has seen, too."""
        if not other.counts:
            return
        self.least = min(self.least, other.least) if self.counts else other.least
        self.largest = max(self.largest, other.largest)
        self.total += other.total
        for number, count in other.counts.items():
            self.counts[number] = self.counts.get(number, 0) + count

    def quantiles(self, shares: Sequence[float]) -> list[int]:
        """Values that shares of the numbers are at most, one for each of ``shares`` (ascending, 0
        to 1); 0 without any number.
        """
        if not self.counts:
            return [0] * len(shares)
        numbers = sorted(self.counts)
        reached = np.cumsum([self.counts[number] for number in numbers])
        wanted = np.maximum(np.ceil(np.array(shares) * reached[-1]), 1)
        places = np.searchsorted(reached, wanted)
        return [
            max(self.least, min(self.largest, end_of(numbers[place]) - 1))
            for place in places.tolist()
        ]

    def steps(self) -> list[tuple[int, int, int]]:
        """Least value, end and count of each bin that has something, ascending."""
        return [
            (first_of(number), end_of(number), self.counts[number])
            for number in sorted(self.counts)
        ]


def bins_of(values: Integers) -> Integers:
    """The bin of each value, none of them negative."""
    # Doubles are exact up to 2**53, which is far beyond what is measured here.
    exponents = np.frexp(np.maximum(values, 1).astype(np.float64))[1].astype(np.int64) - 1
    shifts = np.maximum(exponents - _SUB_BITS, 0)
    bins: Integers = np.where(values < _EXACT, values, _EXACT * shifts + (values >> shifts))
    return bins


def first_of(number: int) -> int:
    """Least value of a bin."""
    if number < 2 * _EXACT:
        return number
    shift = number // _EXACT - 1
    return (number - _EXACT * shift) << shift


def end_of(number: int) -> int:
    """The value behind the largest one of a bin."""
    return first_of(number + 1)


@dataclass(frozen=True, slots=True)
class StatsTask:
    """A part of what is counted.

    Attributes:
        bucket_ms: how long a bucket of the rates is.
    """

    options: SourceOptions
    ranges: tuple[MessageRange, ...]
    bucket_ms: int


@dataclass(slots=True)
class TopicCounts:
    """What was counted of one topic.

    Attributes:
        early: messages that were stored before they were born, by the clocks of two machines.
        keys: how often the most frequent keys were seen.
        keys_lost: so many more times at most may any key have been seen.
    """

    messages: int = 0
    first_stored: int = 1 << 62
    last_stored: int = -1
    early: int = 0
    sizes: ValueHistogram = field(default_factory=ValueHistogram)
    latencies: ValueHistogram = field(default_factory=ValueHistogram)
    rates: Rates = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)
    keys_lost: int = 0

    def merge(self, other: TopicCounts) -> None:
        """Count what ``other`` has, too."""
        self.messages += other.messages
        self.first_stored = min(self.first_stored, other.first_stored)
        self.last_stored = max(self.last_stored, other.last_stored)
        self.early += other.early
        self.sizes.merge(other.sizes)
        self.latencies.merge(other.latencies)
        self.keys.update(other.keys)
        self.keys_lost += other.keys_lost
        for place, (messages, size) in other.rates.items():
            _add_rate(self.rates, place, messages, size)

    def fold_tags(self) -> None:
        """Leave ``TAGS_MAX`` tags, those of most messages, and count the others together."""
        totals: Counter[str | None] = Counter()
        for (tag, _), (messages, _) in self.rates.items():
            totals[tag] += messages
        if len(totals) <= TAGS_MAX:
            return
        kept = {tag for tag, _ in totals.most_common(TAGS_MAX - 1)}
        rates: Rates = {}
        for (tag, bucket), (messages, size) in self.rates.items():
            _add_rate(rates, (tag if tag in kept else OTHER_TAGS, bucket), messages, size)
        self.rates = rates

    def trim_keys(self, count: int) -> None:
        """Leave the ``count`` most frequent keys."""
        if len(self.keys) <= count:
            return
        kept = nlargest(count + 1, self.keys.items(), key=itemgetter(1))
        self.keys_lost += kept.pop()[1]
        self.keys = Counter(dict(kept))


Counts = dict[str, TopicCounts]
"""Counts of each topic, by its name."""


def count_part(task: StatsTask) -> Counts:
    """What the messages of a task are like.

    Raises:
        LedgerError: they cannot be read.
    """
    counts: Counts = {}
    topics = np.array([range_.topic for range_ in task.ranges], object)
    names, codes = np.unique(topics.astype(str), return_inverse=True)
    source = open_source(task.options)
    try:
        fail = task.options.fail_on_data_loss
        for part in source.read(task.ranges, fail_on_data_loss=fail):
            rows = columns_of(part, inflate=False)
            _count(counts, names, codes[part.numbers], rows, task.bucket_ms)
    finally:
        source.close()
    for topic in counts.values():
        topic.trim_keys(KEYS_KEPT)
        topic.fold_tags()
    return counts


def merged(parts: Iterable[Counts], *, keys: int) -> Counts:
    """All counts as one; ``keys`` of the most frequent keys are left of each topic."""
    counts: Counts = {}
    for part in parts:
        for topic, found in part.items():
            counts.setdefault(topic, TopicCounts()).merge(found)
    for topic_counts in counts.values():
        topic_counts.fold_tags()
        topic_counts.trim_keys(keys)
    return counts


def _count(
    counts: Counts,
    names: np.ndarray[tuple[int], np.dtype[np.str_]],
    codes: Integers,
    rows: RecordColumns,
    bucket_ms: int,
) -> None:
    """Count the rows of one batch, topic by topic."""
    batch = rows.batch(["tags", "keys"])
    born, sizes = rows.born_times, rows.body_sizes
    stored = rows.store_times
    for code in np.unique(codes).tolist():
        is_topic = codes == code
        one = counts.setdefault(str(names[code]), TopicCounts())
        times, waits = stored[is_topic], (stored - born)[is_topic]
        one.messages += len(times)
        one.first_stored = min(one.first_stored, int(times.min()))
        one.last_stored = max(one.last_stored, int(times.max()))
        one.early += int((waits < 0).sum())
        one.sizes.add(sizes[is_topic])
        one.latencies.add(waits)
        mask = pa.array(is_topic)
        _count_rates(one.rates, batch.column(0).filter(mask), times, sizes[is_topic], bucket_ms)
        _count_keys(one, batch.column(1).filter(mask))


def _count_rates(
    rates: Rates, tags: pa.StringArray, times: Integers, sizes: Integers, bucket_ms: int
) -> None:
    encoded = tags.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    buckets = times // bucket_ms
    first = int(buckets.min())
    places = encoded.indices.to_numpy() * (int(buckets.max()) - first + 1) + buckets - first
    found, numbers, counts = np.unique(places, return_inverse=True, return_counts=True)
    totals = np.bincount(numbers, weights=sizes)
    width = int(buckets.max()) - first + 1
    for place, messages, size in zip(found.tolist(), counts.tolist(), totals.tolist(), strict=True):
        bucket = first + place % width
        _add_rate(rates, (values[place // width], bucket), messages, int(size))


def _add_rate(rates: Rates, place: tuple[str | None, int], messages: int, size: int) -> None:
    rate = rates.get(place)
    if rate is None:
        rates[place] = [messages, size]
        return
    rate[0] += messages
    rate[1] += size


def _count_keys(one: TopicCounts, keys: pa.StringArray) -> None:
    """Each of a message's keys counts, they have blanks between them."""
    found = keys.drop_null()
    if not len(found):
        return
    if pc.any(pc.match_substring(found, " ")).as_py():
        found = pc.list_flatten(pc.split_pattern(found, " "))
        found = found.filter(pc.not_equal(found, ""))
    for key, count in _value_counts(found):
        one.keys[key] += count
    if len(one.keys) > _KEYS_HELD:
        one.trim_keys(_KEYS_HELD // 4)


def _value_counts(values: pa.StringArray) -> Iterator[tuple[str, int]]:
    counted = values.value_counts()
    return zip(
        counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True
    )
