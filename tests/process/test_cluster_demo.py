"""``ledgermq cluster demo``, as somebody who tries it runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.conftest import SOURCES


@pytest.mark.long
@pytest.mark.slow
def test_a_group_survives_its_leader_and_hands_over() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq.cli.main", "cluster", "demo", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    folder = Path(summary["folder"])
    assert folder.parent == Path("/tmp") and folder.name.startswith("ledgermq-cluster-")
    shutil.rmtree(folder)

    assert summary["messages"] == summary["received"] == 30_000
