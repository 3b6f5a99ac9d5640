"""The package's prerm refuses a version that cannot have the stores of this host."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRERM = ROOT / "packaging" / "debian" / "ledgermq.prerm"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dpkg") is None, reason="compares versions by dpkg"),
]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Settings of two nodes, one of which nobody can read, and a store at level 1."""
    tools, settings, own = (tmp_path / name for name in ("bin", "etc", "store/ledgermq"))
    for folder in (tools, settings, own):
        folder.mkdir(parents=True)
    python = f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)}"
    (tools / "ledgermq").write_text(f'#!/bin/sh\n{python} -m ledgermq.cli.main "$@"\n')
    (tools / "ledgermq").chmod(0o755)
    (tools / "dpkg").symlink_to(str(shutil.which("dpkg")))
    (settings / "broken.toml").write_text("[nothing\n")
    (settings / "ledgermq.toml").write_text(f'[store]\npath_root_dir = "{tmp_path}/store"\n')
    (own / "features.json").write_text('{"level": 1, "ledgermqApplied": 7}')
    return tmp_path


def prerm(host: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script, with the host's folder of settings."""
    script = PRERM.read_text().replace("/etc/ledgermq", str(host / "etc"))
    return subprocess.run(
        ["/bin/sh", "-c", script, "prerm", *words],
        env={**os.environ, "PATH": str(host / "bin")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_version_that_does_not_know_the_level_is_refused_with_the_reason(host: Path) -> None:
    refused = prerm(host, "upgrade", "0.1.0-1~bookworm")

    assert refused.returncode == 1
    assert "cannot have this store" in refused.stderr
    assert "level 1 is in force, which needs 0.2.0 or newer" in refused.stderr


def test_what_the_old_script_has_refused_the_new_one_does_not_allow(host: Path) -> None:
    assert prerm(host, "failed-upgrade", "0.9.0", "0.2.0").returncode == 1
    assert prerm(host, "failed-upgrade", "0.1.0", "0.2.0").returncode == 0


def test_a_version_that_knows_the_level_is_let_in(host: Path) -> None:
    assert prerm(host, "upgrade", "0.2.0-1~trixie").returncode == 0
    (host / "store" / "ledgermq" / "features.json").unlink()
    assert prerm(host, "upgrade", "0.1.0").returncode == 0
