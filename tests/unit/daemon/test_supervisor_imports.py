"""What the supervisor imports before it has said how many threads numpy's library may have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_the_supervisor_has_no_thread_when_it_forks() -> None:
    """In an interpreter of its own, as a node that is started by systemd has one."""
    code = (
        "import os, sys, ledgermq.cli.node.serve_command, ledgermq.daemon.supervisor;"
        "assert 'numpy' not in sys.modules;"
        "from ledgermq.daemon.children import ProcessTable; ProcessTable.load();"
        "print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCES)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
