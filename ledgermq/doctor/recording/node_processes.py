"""Processes of a node on this machine, found without asking it: it may be hung."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.process.child_process import process_title
from ledgermq.process.node_status import roles_in_use

PROC = Path("/proc")

ABOUT_CONNECTIONS = (
    "connections of each process: by its own port (of those that it made: the other's, far:PORT),"
    " by state; how many hosts are at the other ends"
)


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
