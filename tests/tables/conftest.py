"""A catalog of Iceberg tables for each test, in SQLite.

What is tested comes through PyIceberg, pyarrow and PySpark, which a checkout may do without.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import left_out

if TYPE_CHECKING:
    from tests.tables.lake import Lake

_REASON = left_out.without_spark(needs_java=False, libraries=("pyiceberg", "sqlalchemy", "duckdb"))


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Leave the module out, with the reason, where it cannot be imported."""
    return left_out.module(module_path, parent, _REASON) if _REASON else None


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """No table yet; each few messages of the log are a task."""
    from ledgermq.pipeline.archive import archive_job
    from tests.tables.lake import PART_BYTES, Lake

    monkeypatch.setattr(archive_job, "PART_BYTES_MIN", PART_BYTES)
    return Lake.below(tmp_path)
