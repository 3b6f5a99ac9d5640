"""Streams that are begun again where Spark does not wait for Python."""

from __future__ import annotations

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.readwriter import DataStreamWriter

NOT_AWAITED = "Python worker failed to connect back"
STARTS_MAX = 10
RUN_S = 180


def run_to_end(writer: DataStreamWriter, *, timeout_s: float | None = RUN_S) -> None:
    """Run a query until it ends by itself; it fails as the query does.

    For each query that reads a source of Python Spark starts one more interpreter, not by its
    daemon, and gives it ten seconds to import PySpark and to connect. No setting changes that, and
    no task's second try covers it. Nothing was read by then, so it is begun again, as
    docs/operating/spark.md tells operators to.

    Args:
        timeout_s: how long a run may take; without end when None.
    """
    for _ in range(STARTS_MAX):
        query = writer.start()
        try:
            if timeout_s is None:
                query.awaitTermination()
            else:
                assert query.awaitTermination(timeout_s), f"not at its end after {timeout_s} s"
        except StreamingQueryException as error:
            if NOT_AWAITED not in str(error):
                raise
        else:
            return
    raise AssertionError(f"Spark did not wait for Python {STARTS_MAX} times")
