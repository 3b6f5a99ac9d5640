"""An account that may not open the node's sockets is told which group to join."""

from __future__ import annotations

import grp
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3]
STRANGER = 65_534
PROGRAM = """
import json, os, sys
from pathlib import Path
from ledgermq.doctor.examination import _state
from ledgermq.doctor.subject import Subject
from ledgermq.model.config.settings import ListenSection, Settings
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
settings = Settings(listen=ListenSection(runtime_dir=Path(sys.argv[1])))
found = _state(Subject.of(settings))
print(json.dumps([found.verdict.name, found.measured, found.change]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="to be another account needs root")
def test_who_may_not_open_the_sockets_is_told_which_group_may() -> None:
    with tempfile.TemporaryDirectory() as outside:
        folder = Path(outside) / "run"
        folder.mkdir()
        Path(outside).chmod(0o755)
        group = grp.getgrgid(2)
        os.chown(folder, 1, group.gr_gid)
        answers = []
        for mode in (0o750, 0o700):
            folder.chmod(mode)
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, str(folder), str(STRANGER)],
                capture_output=True,
                text=True,
                check=True,
                env={"PYTHONPATH": str(SOURCES)},
            )
            answers.append(json.loads(done.stdout))

    (verdict, measured, change), (_, _, alone) = answers
    assert (verdict, measured) == ("WARN", f"not asked: nobody may not open {folder}")
    assert change.startswith(f"sudo usermod -aG {group.gr_name} nobody, and log in again; or ")
    assert alone == "run doctor as root or as daemon"
