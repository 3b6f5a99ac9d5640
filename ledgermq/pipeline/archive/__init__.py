"""Archives: Parquet files under a manifest, written, verified and replayed.

Begin with ``archive_job.py``; the manifest is ``archive_layout.py``.
"""
