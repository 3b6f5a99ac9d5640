"""Audit replicas and read a store on a cluster, run by ``spark-submit``; prints one JSON object.

cluster_read.py STORE STORE STORE
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from ledgermq.pipeline.jobs.audit_job import audit
from ledgermq.pipeline.jobs.job_session import Job
from ledgermq.pipeline.spark_source import register
from ledgermq.repair.check.check_store import CheckOptions


def where(_: Iterable[int]) -> list[tuple[str, int]]:
    """Where a worker has the package from, and which process it is a child of."""
    import ledgermq

    return [(str(ledgermq.__file__), os.getppid())]


def main() -> None:
    """Do both in one session."""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    roots = [Path(text) for text in sys.argv[1:]]
    found = audit(Job(spark, lambda _done, _all: None), roots, CheckOptions(), split_bytes=1 << 20)
    frame = (
        spark.read.format("ledgermq")
        .options(subscribePattern=".*", minPartitions="4", columns="physicalOffset,crcOk")
        .load(",".join(map(str, roots)))
    )
    rows = frame.collect()
    context = spark.sparkContext
    packages = context.parallelize(range(8), 8).mapPartitions(where).collect()
    said = {
        "master": context.master,
        "faults": [fault.as_text() for fault in found.faults],
        "records": [replica.checked.records for replica in found.replicas],
        "positions": sorted(row.physicalOffset for row in rows),
        "whole": all(row.crcOk for row in rows),
        "packages": sorted({file for file, _ in packages}),
        "processes": len({parent for _, parent in packages}),
    }
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
