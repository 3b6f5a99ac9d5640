"""Spark's jobs but archives: audit, rebuild, statistics, and their reports."""
