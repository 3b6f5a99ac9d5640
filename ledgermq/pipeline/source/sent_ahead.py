"""Prefetch of Arrow batches to the JVM: each goes as soon as it is made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

_BUFFER_SIZE = 65_536
"""Spark's own, where ``spark.buffer.size`` says nothing else."""

_BUFFERS_IN_TAIL = 2
_BUFFERS_IN_BATCH = 16


def sent_ahead(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order; the last ones of a large batch come as a batch of their own.

    Spark's worker writes batches through a buffer that it does not flush in between. What is left
    of a batch there, the short columns behind the bodies, keeps the JVM waiting until the next one
    is made, so that Python and JVM would take turns. A few rows behind it push it out.
    """
    buffer_size = int(os.environ.get("SPARK_BUFFER_SIZE", _BUFFER_SIZE))
    for batch in batches:
        size, rows = batch.nbytes, batch.num_rows
        tail = -(-_BUFFERS_IN_TAIL * buffer_size * rows // size) if size else rows
        if size < _BUFFERS_IN_BATCH * buffer_size or tail >= rows:
            yield batch
            continue
        yield batch.slice(0, rows - tail)
        yield batch.slice(rows - tail)
