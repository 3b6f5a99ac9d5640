"""Processes of a node on this machine, found without asking it: it may be hung; and their host.

Of the host what does not change in a minute, limits of the processes, and what logs have said.
Addresses of interfaces, names of other programs and of accounts are left out: they say little about
a broker, and much about a machine.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

import ledgermq
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.amounts import size_text
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, StorageError, refused_as
from ledgermq.process.child_process import process_title
from ledgermq.process.node_status import roles_in_use
from ledgermq.process.systemd.systemd_tools import BOOTED, run_tool

PROC = Path("/proc")

ABOUT_CONNECTIONS = (
    "connections of each process: by its own port (of those that it made: the other's, far:PORT),"
    " by state; how many hosts are at the other ends"
)

ABOUT_HOST = (
    "kernel, processors, memory, clock source, disks and mounts, network interfaces (without"
    " addresses), kernel settings, versions"
)

ABOUT_LIMITS = "limits of each process, its control group, its priority and processors"
_BLOCKS = Path("/sys/block")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0")
_QUEUE = ("rotational", "scheduler", "write_cache", "nr_requests", "fua", "logical_block_size")

_SETTINGS = (
    *("vm.swappiness", "vm.dirty_ratio", "vm.dirty_background_ratio"),
    *("vm.dirty_expire_centisecs", "vm.overcommit_memory", "vm.max_map_count"),
    *("vm.min_free_kbytes", "net.core.somaxconn", "net.core.rmem_max", "net.core.wmem_max"),
    *("net.ipv4.tcp_retries2", "net.ipv4.tcp_keepalive_time", "net.ipv4.ip_local_port_range"),
    *("fs.file-max", "fs.file-nr", "kernel.pid_max", "kernel.yama.ptrace_scope"),
)

_GROUP_FILES = (
    *("memory.max", "memory.high", "memory.current", "memory.events", "cpu.max", "cpu.stat"),
    *("io.max", "io.pressure", "pids.max", "pids.current"),
)

_WITH_OPTIONS = ("ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "nfs", "nfs4")
"""Those of others may name who mounted them."""

_NOT_ON_DISKS = ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "debugfs", "tracefs")
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


class NodeProcess(NamedTuple):
    """One of them, as it is now."""

    role: Role
    pid: int

    @property
    def title(self) -> str:
        """Its name and number, as files of a record are named by them."""
        return f"{self.role.title}-{self.pid}"


class PageWatch:
    """The cursor page of a node that may start and end meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._page: CursorPage | None = None
        self._file: tuple[int, int] | None = None

    def page(self) -> CursorPage:
        """The page that is there now; it is this object's, until the next call.

        Raises:
            LedgerError: there is none, or none that this version, or this account, can read.
            OSError: the same.
        """
        found = self._path.stat()
        if self._page is None or self._file != (found.st_dev, found.st_ino):
            self.close()
            self._page = CursorPage.attach(self._path)
            self._file = found.st_dev, found.st_ino
        return self._page

    def close(self) -> None:
        """Unmap it."""
        if self._page is not None:
            self._page.close()
            self._page = None


def processes_of(page: CursorPage, settings: Settings) -> list[NodeProcess]:
    """Those that live, of the pids in the page: a pid of a node that is gone may be another's."""
    found = []
    for role in roles_in_use(page):
        pid = page.supervisor_pid if role is Role.SUPERVISOR else page.read_process(role).pid
        if pid > 0 and _title(pid) == process_title(role, settings):
            found.append(NodeProcess(role, pid))
    return found


def processes_now(watch: PageWatch, settings: Settings) -> list[NodeProcess]:
    """Processes of the node that live, as ``processes_of`` finds them; none where no page can be
    read.
    """
    try:
        return processes_of(watch.page(), settings)
    except (LedgerError, OSError):
        return []


def kernel_text(path: Path) -> str:
    """One of the kernel's files; empty when there is none, or it is for others."""
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""


def _title(pid: int) -> str:
    """What ``ps`` shows of the process; empty when there is none."""
    try:
        return os.fsdecode((PROC / str(pid) / "cmdline").read_bytes()).strip("\0 ")
    except OSError:
        return ""


def connection_counts(processes: Iterable[NodeProcess]) -> dict[str, object]:
    """What each process has; ``why_not`` where that may not be looked at."""
    found: dict[str, object] = {}
    for process in processes:
        try:
            found[process.title] = _counts(psutil.Process(process.pid))
        except psutil.AccessDenied:
            found[process.title] = {"why_not": "only root and the node's account may look"}
        except psutil.NoSuchProcess:
            found[process.title] = {"why_not": "it has ended"}
    return found


def _counts(process: psutil.Process) -> dict[str, object]:
    all_of_them = process.net_connections(kind="inet")
    listening = {one.laddr.port for one in all_of_them if one.status == psutil.CONN_LISTEN}
    counts: dict[str, Counter[str]] = {}
    hosts: dict[str, set[str]] = {}
    for one in all_of_them:
        port = str(one.laddr.port)
        if one.raddr and one.laddr.port not in listening:
            port = f"far:{one.raddr.port}"
        counts.setdefault(port, Counter())[one.status] += 1
        if one.raddr:
            hosts.setdefault(port, set()).add(one.raddr.ip)
    return {
        "tcp": {port: dict(states) for port, states in sorted(counts.items())},
        "far_hosts": {port: len(ends) for port, ends in sorted(hosts.items())},
        "unix": len(process.net_connections(kind="unix")),
    }


def host_facts(places: Iterable[Path]) -> dict[str, object]:
    """The host.

    Args:
        places: folders of the node, whose file systems are told in full.
    """
    return {
        "system": platform.uname()._asdict() | {"node": platform.node()},
        "release": _pairs(Path("/etc/os-release")),
        "python": sys.version,
        "ledgermq": ledgermq.__version__,
        "booted": psutil.boot_time(),
        "processors": _processors(),
        "clock_source": {
            name: kernel_text(_CLOCK / name)
            for name in ("current_clocksource", "available_clocksource")
        },
        "memory": psutil.virtual_memory()._asdict(),
        "swap": psutil.swap_memory()._asdict(),
        "huge_pages": kernel_text(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "settings": {
            name: kernel_text(PROC / "sys" / name.replace(".", "/")).split() for name in _SETTINGS
        },
        "mounts": [
            line.split()[: 4 if line.split()[2] in _WITH_OPTIONS else 3]
            for line in kernel_text(PROC / "mounts").splitlines()
            if line.split()[2] not in _NOT_ON_DISKS
        ],
        "disks": {path.name: _disk(path) for path in _listed(_BLOCKS)},
        "node_places": {str(path): _place(path) for path in places},
        "interfaces": {
            name: {"is_up": one.isup, "duplex": one.duplex, "speed": one.speed, "mtu": one.mtu}
            for name, one in psutil.net_if_stats().items()
        },
    }


def limits_of(processes: Iterable[NodeProcess]) -> str:
    """Limits of each process, as the kernel words them."""
    parts = []
    for process in processes:
        folder = PROC / str(process.pid)
        with suppress(psutil.Error, OSError):
            one = psutil.Process(process.pid)
            parts += [
                f"== {process.title}",
                kernel_text(folder / "limits"),
                f"nice {one.nice()}, processors {sorted(one.cpu_affinity() or ())},"
                f" oom_score_adj {kernel_text(folder / 'oom_score_adj')}",
                *_control_group(folder),
                "",
            ]
    return "\n".join(parts) + "\n"


def _control_group(folder: Path) -> list[str]:
    """Lines about the process's group in the unified hierarchy of control groups, which systemd
    uses.
    """
    for line in kernel_text(folder / "cgroup").splitlines():
        number, _, path = line.partition("::")
        if number == "0":
            group = Path("/sys/fs/cgroup") / path.lstrip("/")
            told = [f"  {name}: {kernel_text(group / name)}" for name in _GROUP_FILES]
            return [f"control group {path}", *(one for one in told if not one.endswith(": "))]
    return []


def _processors() -> dict[str, object]:
    models = {
        line.partition(":")[2].strip()
        for line in kernel_text(PROC / "cpuinfo").splitlines()
        if line.startswith(("model name", "CPU part"))
    }
    return {
        "models": sorted(models),
        "count": psutil.cpu_count(),
        "cores": psutil.cpu_count(logical=False),
        "usable": len(os.sched_getaffinity(0)),
        "governor": kernel_text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
    }


def _disk(path: Path) -> dict[str, str]:
    found = {name: kernel_text(path / "queue" / name) for name in _QUEUE}
    return {
        "size_512": kernel_text(path / "size"),
        "model": kernel_text(path / "device" / "model"),
        **found,
    }


def _place(path: Path) -> dict[str, object]:
    try:
        usage, kinds = shutil.disk_usage(path), os.statvfs(path)
        device = path.stat().st_dev
    except OSError as error:
        return {"why_not": error.strerror}
    return {
        **usage._asdict(),
        "inodes": kinds.f_files,
        "inodes_free": kinds.f_ffree,
        "block": kinds.f_bsize,
        "device": f"{os.major(device)}:{os.minor(device)}",
    }


def _pairs(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in kernel_text(path).splitlines())
    return {name: value.strip('"') for name, _, value in lines}


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def journal_of(unit: str) -> str:
    """The end of what a unit has said.

    Raises:
        StorageError: it cannot be had.
        TimedOutError: journalctl does not answer.
    """
    return _journal(f"--unit={unit}", f"--lines={JOURNAL_LINES}")


def kernel_log() -> str:
    """What the kernel has said within a day of memory, disks, processes that died, and clocks.

    Raises:
        StorageError: it cannot be had.
        TimedOutError: journalctl does not answer.
    """
    told = _journal("--dmesg", f"--lines={KERNEL_LINES}", f"--since={KERNEL_SECONDS}")
    return "".join(line + "\n" for line in told.splitlines() if _OF_HOST.search(line))


def log_file_of(pid: int) -> tuple[Path, str]:
    """The file to which a process writes its log lines, and the end of it.

    Raises:
        StorageError: it writes to none, or this account may not read it.
    """
    link = PROC / str(pid) / "fd" / str(_STDERR)
    with refused_as("the log cannot be read", why="within", path=link):
        # Through the process, so that a file is found that has been moved or removed meanwhile.
        with open(os.open(link, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise StorageError("the node does not log to a file", logs_to=str(link.readlink()))
            file.seek(max(0, found.st_size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
        path = link.readlink()
    if found.st_size > TAIL_BYTES:
        text = f"[the last {size_text(TAIL_BYTES)} of {size_text(found.st_size)}]\n{text}"
    return path, text


def _journal(*which: str) -> str:
    how = ("--output=short-iso-precise", "--no-pager", "--no-hostname", "--quiet")
    return run_tool([_journalctl(), *which, *how])


def _journalctl() -> str:
    tool = shutil.which("journalctl")
    if tool is None or not BOOTED.is_dir():
        raise StorageError("there is no journal: systemd is not PID 1 here")
    return tool
