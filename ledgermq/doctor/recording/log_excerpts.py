"""Excerpts of logs: the node's, from the journal or the file that it writes to; the kernel's."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

from ledgermq.doctor.recording.node_processes import PROC
from ledgermq.model.config.amounts import size_text
from ledgermq.model.errors import StorageError
from ledgermq.process.systemd.systemd_tools import BOOTED, run_tool

JOURNAL_LINES = 20_000
KERNEL_LINES = 5_000
TAIL_BYTES = 4 * 1024 * 1024
KERNEL_SECONDS = "-24h"

_STDERR = 2
_OF_HOST = re.compile(
    r"out of memory|oom|i/o error|blk_|buffer i/o|ext4|xfs|btrfs|nvme|\bata\d|\bscsi|\bsd[a-z]\b"
    r"|\bmd\d|segfault|general protection|hung task|blocked for more|soft lockup|rcu.*stall"
    r"|clocksource|throttl|mce:|nf_conntrack: table full|link is (?:up|down)|possible syn flood"
    r"|ledgermq|python",
    re.IGNORECASE,
)
"""Lines of the kernel that say something of a host under a broker; a firewall's do not."""


def journal_of(unit: str) -> str:
    """The end of what a unit has said.

    Raises:
        StorageError: it cannot be had.
        TimedOutError: journalctl does not answer.
    """
    return run_tool(
        [
            _journalctl(),
            f"--unit={unit}",
            f"--lines={JOURNAL_LINES}",
            "--output=short-iso-precise",
            "--no-pager",
            "--no-hostname",
            "--quiet",
        ]
    )


def kernel_log() -> str:
    """What the kernel has said within a day of memory, disks, processes that died, and clocks.

    Raises:
        StorageError: it cannot be had.
        TimedOutError: journalctl does not answer.
    """
    told = run_tool(
        [
            _journalctl(), "--dmesg", f"--lines={KERNEL_LINES}", f"--since={KERNEL_SECONDS}",
            "--output=short-iso-precise", "--no-pager", "--no-hostname", "--quiet",
        ]
    )  # fmt: skip
    return "".join(line + "\n" for line in told.splitlines() if _OF_HOST.search(line))


def log_file_of(pid: int) -> tuple[Path, str]:
    """The file to which a process writes its log lines, and the end of it.

    Raises:
        StorageError: it writes to none, or this account may not read it.
    """
    link = PROC / str(pid) / "fd" / str(_STDERR)
    try:
        # Through the process, so that a file is found that has been moved or removed meanwhile.
        with open(os.open(link, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise StorageError("the node does not log to a file", logs_to=str(link.readlink()))
            file.seek(max(0, found.st_size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
        path = link.readlink()
    except OSError as error:
        raise StorageError(
            f"the log cannot be read: {error.strerror}", errno=error.errno, path=str(link)
        ) from error
    if found.st_size > TAIL_BYTES:
        text = f"[the last {size_text(TAIL_BYTES)} of {size_text(found.st_size)}]\n{text}"
    return path, text


def _journalctl() -> str:
    tool = shutil.which("journalctl")
    if tool is None or not BOOTED.is_dir():
        raise StorageError("there is no journal: systemd is not PID 1 here")
    return tool
