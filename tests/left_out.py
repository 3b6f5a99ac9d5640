"""Folders of Spark's tests that cannot run here: one skipped test a module, which says why.

The modules themselves are not imported, for they import what is missing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

_ASKED_NOT = "LEDGERMQ_WITHOUT_SPARK=1"

_READS = re.compile(r"^from ledgermq\.(pipeline|cli\.spark)\b", re.M)


def without_spark(*, needs_java: bool, libraries: tuple[str, ...] = ()) -> str:
    """Why tests of Spark, or of what reads for it, cannot run here; empty where they can.

    Args:
        libraries: that they import besides.
    """
    if os.environ.get("LEDGERMQ_WITHOUT_SPARK") == "1":
        return _ASKED_NOT
    names = ("pyarrow", "pyspark", *libraries)
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (packaging/bootstrap.sh, where Java is)"
    if needs_java and shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "no Java (packaging/bootstrap.sh as root installs it)"
    return ""


def module(path: Path, parent: pytest.Collector, reason: str) -> pytest.Module:
    """What stands for the module at ``path``; for the hook ``pytest_pycollect_makemodule``."""
    left_out: _LeftOutModule = _LeftOutModule.from_parent(parent, path=path)
    left_out.reason = reason
    return left_out


def reading_module(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The same where the module imports what reads for Spark, and that cannot run here."""
    reason = without_spark(needs_java=False)
    if reason and _READS.search(path.read_text()):
        return module(path, parent, reason)
    return None


class _LeftOutModule(pytest.Module):
    reason = ""

    def collect(self) -> Iterator[pytest.Item]:
        item: _LeftOutItem = _LeftOutItem.from_parent(self, name="left_out")
        item.reason = self.reason
        yield item


class _LeftOutItem(pytest.Item):
    reason = ""

    def runtest(self) -> None:
        if os.environ.get("LEDGERMQ_SPARK") == "1" and self.reason != _ASKED_NOT:
            pytest.fail(f"LEDGERMQ_SPARK=1 asks for it, and yet: {self.reason}")
        pytest.skip(self.reason)
