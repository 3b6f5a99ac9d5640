"""What reads for Spark needs pyarrow and PySpark, which a checkout may do without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import left_out

_REASON = left_out.without_spark(needs_java=False)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Leave the module out, with the reason, where it cannot be imported."""
    return left_out.module(module_path, parent, _REASON) if _REASON else None
