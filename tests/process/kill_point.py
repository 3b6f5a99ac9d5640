"""A node one of whose processes is killed at a certain call that changes a file.

    kill_point.py CONFIG PLAN

PLAN is a JSON file: ``role`` (whose calls count), ``folder`` (only calls for files in a folder of
that name count; empty for all), ``names`` (only these calls count; none for all), ``call`` (the
n-th, from 1), ``moment``
(``before``, ``after`` or ``within`` it: a write is done in half), ``scope`` (``process`` or
``node``). Who dies removes PLAN first, and writes what it died of beside it (``PLAN.died``);
without a PLAN nobody dies. The processes are the node's own: Python's functions are replaced
before they are forked, and so are the three that write through a map or the C library.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledgermq.cli.main import main
from ledgermq.daemon.children import ProcessTable
from ledgermq.ipc.cursor_page import Role
from ledgermq.process import child_process

CALLS = (
    "pwrite",
    "write",
    "ftruncate",
    "truncate",
    "rename",
    "replace",
    "unlink",
    "link",
    "mkdir",
    "fsync",
    "fdatasync",
    "posix_fallocate",
)
WRITES = ("pwrite", "write")
MAP_WRITES = ("put_header", "set_slots")

_kill, _getpid, _getppid, _unlink = os.kill, os.getpid, os.getppid, os.unlink
_open, _write, _pwrite, _close = os.open, os.write, os.pwrite, os.close


class KillPoint:
    """Counts the calls of one process; shared by all wrappers of it."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._role = ""
        self._folder = ""
        self._names: tuple[str, ...] = ()
        self._call = 0
        self._counted = 0
        self._moment = ""
        self._scope = ""

    def enter(self, role: Role) -> None:
        """This process is ``role`` now: count its calls if it is the one that has to die."""
        self._call = 0
        try:
            plan = json.loads(self._plan.read_text())
        except FileNotFoundError:
            return
        if plan["role"] != role.title:
            return
        self._role, self._call = role.title, plan["call"]
        self._moment, self._scope = plan["moment"], plan["scope"]
        self._folder, self._names = plan["folder"], tuple(plan["names"])

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, at the right call of which the process dies."""

        def counted(*args: Any, **keywords: Any) -> Any:
            if not self._call or not self._counts(name, args):
                return function(*args, **keywords)
            self._counted += 1
            if self._counted != self._call:
                return function(*args, **keywords)
            if self._moment == "within" and name in WRITES:
                data = memoryview(args[1]).cast("B")
                half = data[: len(data) // 2]
                function(args[0], half, *args[2:])
            elif self._moment == "after":
                function(*args, **keywords)
            self._die(name, args)

        return counted

    def _counts(self, name: str, args: tuple[Any, ...]) -> bool:
        if self._names and name not in self._names:
            return False
        if name == "open":
            return bool(args[1] & os.O_CREAT) and self._is_in_folder(name, args)
        if name == "write":
            # Bells and what is logged are no files.
            target = _name_of(args[0])
            if not target.startswith("/") or target.endswith(".bell") or args[0] <= 2:
                return False
        return self._is_in_folder(name, args)

    def _is_in_folder(self, name: str, args: tuple[Any, ...]) -> bool:
        return not self._folder or f"/{self._folder}" in _target(name, args)

    def _die(self, name: str, args: tuple[Any, ...]) -> None:
        target = _target(name, args)
        text = f"{self._role} {self._moment} {name} {target} (call {self._call})\n"
        fd = _open(f"{self._plan}.died", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _write(fd, text.encode())
        _close(fd)
        _unlink(self._plan)
        if self._scope == "node" and self._role != Role.SUPERVISOR.title:
            # Its children die with it, a moment later.
            _kill(_getppid(), signal.SIGKILL)
        _kill(_getpid(), signal.SIGKILL)
        signal.pause()


def _target(name: str, args: tuple[Any, ...]) -> str:
    """The file that a call changes; what is written through a map is the Index."""
    if name in MAP_WRITES:
        return "/index/"
    return _name_of(args[0]) if isinstance(args[0], int) else str(args[0])


def _name_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def install(point: KillPoint) -> None:
    """Replace what changes files, and have each process say who it is."""
    for name in (*CALLS, "open"):
        setattr(os, name, point.wrap(name, getattr(os, name)))
    # The table first: who imports numpy must keep it from making threads.
    ProcessTable.load()
    from ledgermq.store.files import append_files
    from ledgermq.store.index import index_files

    append_files._punch_hole = point.wrap("punch_hole", append_files._punch_hole)
    for name in MAP_WRITES:
        setattr(index_files, name, point.wrap(name, getattr(index_files, name)))
    live = child_process.live

    def entered(role: Role, *args: Any, **keywords: Any) -> None:
        point.enter(role)
        live(role, *args, **keywords)

    child_process.live = entered  # type: ignore[assignment]


if __name__ == "__main__":
    config, plan = sys.argv[1:]
    killed = KillPoint(Path(plan))
    install(killed)
    killed.enter(Role.SUPERVISOR)
    sys.exit(main(["serve", "--config", config]))
