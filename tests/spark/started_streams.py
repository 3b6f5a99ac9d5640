"""Streams that are run until they end by themselves."""

from __future__ import annotations

from pyspark.sql.streaming.readwriter import DataStreamWriter

RUN_S = 180


def run_to_end(writer: DataStreamWriter, *, timeout_s: float | None = RUN_S) -> None:
    """Run a query until it ends by itself; it fails as the query does.

    Args:
        timeout_s: how long it may take; without end when None.
    """
    query = writer.start()
    if timeout_s is None:
        query.awaitTermination()
    else:
        assert query.awaitTermination(timeout_s), f"not at its end after {timeout_s} s"
