"""Nodes, an S3 server behind a proxy, and one Spark, as the tests of each have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import left_out
from tests.buckets.conftest import proxy, server
from tests.process.conftest import make_node
from tests.spark.conftest import spark

__all__ = ["make_node", "proxy", "server", "spark"]

_REASON = left_out.without_spark(needs_java=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Leave the module out, with the reason, where it cannot run."""
    return left_out.module(module_path, parent, _REASON) if _REASON else None
