"""What Spark reads of an archive in a bucket, by Hadoop's s3a.

    reading_spark.py JARS ENDPOINT ARCHIVE

prints topic, queue and offset of all rows, as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(jars: str, endpoint: str, archive: str) -> None:
    """A session of its own: its JVM has to begin with the jars."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": jars,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    rows = session.read.parquet(archive).select("topic", "queueId", "queueOffset").collect()
    session.stop()
    print(json.dumps(sorted([list(row) for row in rows])))


if __name__ == "__main__":
    main(*sys.argv[1:])
