"""The rules of reading: pulls ahead, positions, queries, retries, dead letters.

Begin with ``pull_pipeline.py``.
"""
