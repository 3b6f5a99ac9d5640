"""What serves sealed pieces reads them as Spark does, with libraries that a checkout may lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import left_out


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Leave a module out, with the reason, where it cannot be imported."""
    return left_out.reading_module(module_path, parent)
