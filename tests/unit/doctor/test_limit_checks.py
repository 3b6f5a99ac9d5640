"""Limits as a process of its own has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]), int(sys.argv[2])))
from ledgermq.doctor.examination import limit_checks
from ledgermq.doctor.subject import Subject
from ledgermq.model.config.settings import Settings, StoreSection
settings = Settings(store=StoreSection(path_root_dir=Path(sys.argv[3])))
for finding in limit_checks(Subject(settings, None, None)):
    print(json.dumps([finding.check, finding.verdict.name, finding.measured]))
"""


def findings(kind: str, soft: int, root: Path) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(soft), str(root)],
        capture_output=True, text=True, check=True, timeout=60, env={"PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    rows = map(json.loads, done.stdout.splitlines())
    return {check: rest for check, *rest in rows}


@pytest.mark.slow
@pytest.mark.parametrize(("soft", "verdict"), [(512, "FAIL"), (2_048, "WARN")])
def test_few_open_files_are_told(tmp_path: Path, soft: int, verdict: str) -> None:
    found, measured = findings("RLIMIT_NOFILE", soft, tmp_path)["limits.open-files"]

    assert found == verdict
    assert measured.startswith(f"{soft} open files for this shell")


@pytest.mark.slow
def test_keys_need_a_little_locked_memory(tmp_path: Path) -> None:
    found, measured = findings("RLIMIT_MEMLOCK", 4_096, tmp_path)["limits.locked-memory"]

    assert found == "WARN"
    assert measured.startswith("4.0 KiB of locked memory")
