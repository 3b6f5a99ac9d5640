"""Defaults of Spark's jobs, which the command line names without a library of Spark."""

from __future__ import annotations

SPLIT_BYTES = 128 * 1024 * 1024
"""A task of Spark costs some 40 ms: that is little beside so much of the log."""

LEVEL_DEFAULT = -5
"""Level of zstd: hardly slower than LZ4, and smaller; compressing is not what limits a run."""

LEVELS = range(-7, 20)

TYPED = "typed"
"""Value of ``columns`` for bodies as fields."""
