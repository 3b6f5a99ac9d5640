"""Spark's source, sink and jobs: the store, or a running cluster, as rows.

Begin with ``spark_source.py`` and ``sink/spark_sink.py``; each job has its ``*_job.py``. It may
import ``client``, ``repair``, ``store`` and below, and no process of a node.
"""
