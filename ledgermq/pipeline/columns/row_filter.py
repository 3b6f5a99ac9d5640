"""Row filter: conditions that are known before rows are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.record_columns import RecordColumns
from ledgermq.pipeline.source_options import TopicChoice

Limits = Mapping[str, tuple[int, int]]
"""Least and largest value of a column, both included."""

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

LIMITED = frozenset({"queueId", "queueOffset", "physicalOffset", "storeTimestamp"})
"""Columns that can have limits; times are in epoch ms."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """All of it must hold.

    Attributes:
        choice: which queues; None when the ranges that are read say so already.
        topics, queue_ids: values that were asked for; None for all.
    """

    choice: TopicChoice | None = None
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    limits: Limits = field(default_factory=dict)

    def apply(self, rows: RecordColumns) -> None:
        """Leave out the rows that are not wanted."""
        for name, (low, high) in self.limits.items():
            values = _values(rows, name)
            rows.keep((values >= low) & (values <= high))
        if self.queue_ids is not None:
            rows.keep(np.isin(rows.queue_ids, sorted(self.queue_ids)))
        if self.topics is not None:
            wanted = pa.array(sorted(self.topics), pa.string())
            rows.keep(pc.is_in(rows.topics, wanted).to_numpy(zero_copy_only=False))
        if self.choice is not None and len(rows):
            rows.keep(_chosen(rows, self.choice))

    def narrowed(self, limits: Limits) -> RowFilter:
        """This filter with more limits."""
        merged = dict(self.limits)
        for name, (low, high) in limits.items():
            before = merged.get(name, (_INT_MIN, _INT_MAX))
            merged[name] = max(before[0], low), min(before[1], high)
        return RowFilter(self.choice, self.topics, self.queue_ids, merged)

    def limit(self, name: str) -> tuple[int, int]:
        """Least and largest value of a column."""
        return self.limits.get(name, (_INT_MIN, _INT_MAX))


def at_least(name: str, value: int) -> Limits:
    """A column is ``value`` or more."""
    return {name: (value, _INT_MAX)}


def at_most(name: str, value: int) -> Limits:
    """A column is ``value`` or less."""
    return {name: (_INT_MIN, value)}


def _values(rows: RecordColumns, name: str) -> Integers:
    if name == "queueId":
        return rows.queue_ids.astype(np.int64)
    if name == "queueOffset":
        return rows.queue_offsets
    return rows.physical_offsets if name == "physicalOffset" else rows.store_times


def _chosen(rows: RecordColumns, choice: TopicChoice) -> npt.NDArray[np.bool_]:
    topics = rows.topics.dictionary_encode()
    queue_ids = rows.queue_ids
    codes = topics.indices.to_numpy()
    chosen = np.zeros(len(rows), np.bool_)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        is_topic = codes == code
        for queue_id in np.unique(queue_ids[is_topic]).tolist():
            if choice.has((topic, queue_id)):
                chosen |= is_topic & (queue_ids == queue_id)
    return chosen
