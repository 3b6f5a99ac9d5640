"""Threads of libraries that compute: a process that is to fork has none of them."""

from __future__ import annotations

import os

_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def keep_libraries_to_one_thread() -> None:
    """Let numpy make no threads, which would not survive a fork. It reads that once, when it is
    imported.
    """
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
