"""Completions of the command, as shells that read them find them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ASKS = {
    "bash": 'source "$1"; COMP_WORDS=(ledgermq topic cr) COMP_CWORD=2;'
    ' "$(complete -p ledgermq | sed "s/.*-F \\([^ ]*\\).*/\\1/")" ledgermq cr topic;'
    ' echo "${COMPREPLY[@]}"',
    "fish": 'source $argv[1]; complete -C "ledgermq topic cr"',
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", ASKS)
def test_a_shell_completes_the_verbs_of_a_command(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"not installed: {shell}")
    # Where fish looks for an account's own settings.
    (tmp_path / "ledgermq").touch(mode=0o755)
    completions = tmp_path / f"ledgermq.{shell}"
    with completions.open("w") as file:
        program = [sys.executable, ROOT / "packaging" / "completions.py", shell]
        subprocess.run(program, stdout=file, check=True, cwd=ROOT)

    words = [shell, "-c", ASKS[shell], *(["-"] if shell == "bash" else []), completions]
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.split()[0] == "create"
    if shell == "fish":
        assert done.stdout == "create\tcreate a topic, or give one more queues\n"
