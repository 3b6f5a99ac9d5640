"""Processes of a node on this machine, found without asking it: it may be hung."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.process.child_process import process_title
from ledgermq.process.node_status import roles_in_use

PROC = Path("/proc")


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


def _title(pid: int) -> str:
    """What ``ps`` shows of the process; empty when there is none."""
    try:
        return os.fsdecode((PROC / str(pid) / "cmdline").read_bytes()).strip("\0 ")
    except OSError:
        return ""
