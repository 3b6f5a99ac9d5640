"""Spark's jobs but archives: audit, rebuild, statistics, and their reports.

Begin with the ``*_job.py`` of a job.
"""
