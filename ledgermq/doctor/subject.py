"""Subject of an examination: a node's settings, and the node itself if it runs."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import psutil

from ledgermq.hosts.accounts import account_name, group_name, way_into
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.store.files.store_paths import StorePaths

if TYPE_CHECKING:
    from ledgermq.daemon.health.status import NodeStatus


@dataclass(frozen=True, slots=True)
class Subject:
    """A node as it is configured, and as it runs.

    Attributes:
        status: what its supervisor answers; None when nobody answers there.
        raft: what its raft process answers; None likewise.
        silence: why ``status`` is None.
    """

    settings: Settings
    status: NodeStatus | None
    raft: Mapping[str, object] | None
    silence: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The node of ``settings``, asked whether it runs."""
        paths = RuntimePaths(settings.listen.runtime_dir)
        try:
            status = control.ask(paths.control, "status")
        except LedgerError as error:
            return cls(settings, None, None, str(error))
        try:
            raft = control.ask(paths.raft_control, "status")
        except LedgerError:
            # It starts, or stops; the supervisor's answer says what it waits for.
            raft = None
        return cls(settings, cast("NodeStatus", status), raft)

    @property
    def paths(self) -> StorePaths:
        """Its store."""
        return StorePaths.of(self.settings)

    @property
    def pids(self) -> list[int]:
        """Its processes, the supervisor first; none when it does not run."""
        if self.status is None:
            return []
        return [process["pid"] for process in self.status["processes"] if process["pid"]]

    @property
    def barrier(self) -> Path | None:
        """What keeps this account from the node's sockets: their folder, or one of them."""
        folder = self.settings.listen.runtime_dir
        if folder.is_dir() and not os.access(folder, os.X_OK):
            return folder
        control = RuntimePaths(folder).control
        return control if control.exists() and not os.access(control, os.W_OK) else None

    @property
    def account(self) -> int:
        """Number of the account whose files the node's are: its own, else the store's owner."""
        if self.pids:
            try:
                return psutil.Process(self.pids[0]).uids().effective
            except psutil.Error:
                pass
        root = nearest(self.paths.root)
        return root.stat().st_uid if root == self.paths.root else os.geteuid()


def nearest(path: Path) -> Path:
    """``path``, or the innermost folder above it that exists and may be looked at."""
    while not _is_seen(path):
        path = path.parent
    return path


def _is_seen(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can mean itself by it; names are not resolved."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(endpoint: str) -> str:
    """The host of a ``tcp://HOST:PORT``."""
    return endpoint.removeprefix("tcp://").rpartition(":")[0]


def way_in(barrier: Path) -> str:
    """What lets this account pass ``barrier``: the group whose members may, or another account."""
    status = barrier.stat()
    other = f"run doctor as root or as {account_name(status.st_uid)}"
    # A folder is passed, a socket is written to.
    needed = stat.S_IXGRP if barrier.is_dir() else stat.S_IWGRP
    group = group_name(status.st_gid)
    if not status.st_gid or not status.st_mode & needed or group is None:
        return other
    return f"{way_into(group)}, and log in again; or {other}"
