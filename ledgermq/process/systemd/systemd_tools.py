"""Answers of systemd's tools about this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from ledgermq.model.errors import StorageError, TimedOutError

BOOTED = Path("/run/systemd/system")
"""Is there where systemd is PID 1 (sd_booted(3))."""

SYSTEMCTL_S = 15.0


def listening_units(*, booted: Path = BOOTED) -> dict[str, str]:
    """Socket units that listen now, by where they do, as ``0.0.0.0:10911``; none without systemd.

    Raises:
        StorageError: systemctl failed.
        TimedOutError: it did not answer.
    """
    tool = shutil.which("systemctl")
    if not booted.is_dir() or tool is None:
        return {}
    told = run_tool([tool, "list-sockets", "--output=json", "--no-pager"])
    return {one["listen"]: one["unit"] for one in json.loads(told)}


def run_tool(command: list[str]) -> str:
    """What one of systemd's programs prints.

    Raises:
        StorageError: it failed; has what it said.
        TimedOutError: it did not end.
    """
    try:
        done = subprocess.run(  # noqa: S603 - systemd's tools, without a shell
            command, capture_output=True, text=True, check=False, timeout=SYSTEMCTL_S
        )
    except subprocess.TimeoutExpired as error:
        raise TimedOutError("no answer", command=command[0], waited_s=SYSTEMCTL_S) from error
    if done.returncode != 0:
        raise StorageError(
            done.stderr.strip() or "failed", command=command[0], status=done.returncode
        )
    return done.stdout
