"""The group of a run: nodes at hosts of their own, each with a disk that can be filled."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ledgermq.model.errors import LedgerError
from ledgermq.process import control
from tests.power.groups import amend
from tests.process.conftest import Node, nodes_made
from tests.process.group_nodes import Group, Member, make_group
from tests.random_faults.network import FaultyNetwork

ASK_S = 3.0
"""For an answer of a node that may stand still."""

PRODUCE, CONSUME, REMOTING = 10_921, 10_922, 10_911
DISK_MIB = 1_024
BLOCK = 1 << 20
SIZES = {
    "mapped_file_size_commit_log": 4_194_304,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 5_000,
    "max_index_num": 20_000,
}
TRANSACTIONS = {
    "transaction_timeout_ms": 1_000,
    "transaction_check_interval_ms": 1_000,
    "transaction_check_max": 1_000_000,
}
RETENTION = {"clean_above": "98%", "force_above": "98%", "refuse_above": "98%"}
LIMITS = {"creations_per_s": 0, "client_window_bytes": 8 << 20, "total_window_bytes": 8 << 20}


class FaultyNode(Node):
    """A node that leads a session, by which all its processes are found; its disk is a tmpfs."""

    def __init__(self, folder: Path) -> None:
        """Its disk is there, and empty."""
        super().__init__(folder)
        disk = folder / "disk"
        disk.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "disk", str(disk)]
        subprocess.run(words, check=True)
        self.root = disk / "store"
        self._ballast = disk / "ballast"
        self.is_wanted = False
        """Whether it is to run; a fault that has it down says no."""

    def launch(self, command: list[str], **how: Any) -> None:
        """Start the supervisor."""
        self.is_wanted = True
        super().launch(command, **how)

    def roles(self) -> dict[str, int]:
        """Processes by their role, from their titles: nobody needs to answer."""
        found: dict[str, int] = {}
        for pid in self.session():
            with suppress(psutil.Error):
                words = " ".join(psutil.Process(pid).cmdline()).split()
                if words[:1] == ["ledgermq:"]:
                    found[words[1]] = pid
        return found

    def session(self) -> list[int]:
        """All its processes."""
        if self.process is None:
            return []
        return [pid for pid in psutil.pids() if _session_of(pid) == self.process.pid]

    def signal_all(self, number: int, pids: Sequence[int] | None = None) -> None:
        """A signal for all its processes, or for some."""
        for pid in self.session() if pids is None else pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """-9 for all; returns when none is left."""
        self.is_wanted = False
        while pids := self.session():
            self.signal_all(signal.SIGKILL, pids)
            if self.process is not None:
                self.process.wait()
            os.sched_yield()

    def destroy(self) -> None:
        """Leave nothing running, nor mounted."""
        super().destroy()
        subprocess.run(["umount", "--lazy", str(self._ballast.parent)], check=True)

    def has_ended(self) -> bool:
        """Whether its supervisor has gone, or none was started."""
        return self.process is None or self.process.poll() is not None

    def fill(self, leave: int) -> None:
        """Take all of the disk but so many bytes."""
        disk = os.statvfs(self._ballast.parent)
        with self._ballast.open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, disk.f_bavail * disk.f_frsize - leave))

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)


class Bed:
    """The group, and how clients reach it, and are told something: ``folder`` is the run's."""

    def __init__(self, group: Group, network: FaultyNetwork, folder: Path) -> None:
        self.group = group
        self.network = network
        self.folder = folder
        self.ended: list[str] = []
        """What nodes have ended by themselves, with their status; they were started again."""

    @property
    def members(self) -> list[Member]:
        return self.group.members

    @property
    def addresses(self) -> str:
        """For clients at other hosts."""
        hosts = self.network.members
        return ",".join(f"tcp://{self.network.address(one)}:{CONSUME}" for one in hosts)

    @property
    def ports(self) -> str:
        """For RocketMQ's clients."""
        return ",".join(f"{self.network.address(one)}:{REMOTING}" for one in self.network.members)

    def leader_now(self) -> Member | None:
        """Who says that it leads; None if nobody says so, or nobody answers soon."""
        for member in self.members:
            status = status_of(member)
            if status is not None and status["raft"].get("granted"):
                return member
        return None

    def keep_up(self) -> None:
        """Start what has ended by itself, as systemd does."""
        for member in self.members:
            node = node_of(member)
            if node.is_wanted and node.has_ended():
                assert node.process is not None
                self.ended.append(f"{member.name} with status {node.process.returncode}")
                node.end()
                member.start()


def node_of(member: Member) -> FaultyNode:
    assert isinstance(member.node, FaultyNode)
    return member.node


def status_of(member: Member) -> dict[str, Any] | None:
    """What it says of itself; None if it does not run, or does not answer soon."""
    if node_of(member).has_ended():
        return None
    try:
        return control.ask(member.node.runtime / "control.sock", "status", timeout_s=ASK_S)
    except (LedgerError, OSError):
        return None


@contextmanager
def beds(network: FaultyNetwork, folder: Path) -> Iterator[Bed]:
    """A group that has been started; all of it ends with the block."""

    def prepare(member: Member) -> None:
        host = int(member.name[1:])
        address = network.address(host)
        amend(
            member,
            {
                "node": {"broker_ip": address, "listen_port": REMOTING},
                "listen": {
                    "produce": f"tcp://{address}:{PRODUCE}",
                    "consume": f"tcp://{address}:{CONSUME}",
                    "remoting": f"{address}:{REMOTING}",
                    "vip_channel": False,
                },
                "access": {"admin_over_clients": True},
                "topics": {"auto_create_topic_enable": False},
                "limits": LIMITS,
                "transactions": TRANSACTIONS,
                "retention": RETENTION,
            },
        )

    with nodes_made(FaultyNode) as make:
        group = make_group(
            make, members=len(network.members), ack="majority-fsync", sizes=SIZES,
            network=network, supervision={"beat_timeout_ms": 5_000}, prepare=prepare,
        )  # fmt: skip
        yield Bed(group, network, folder)


def _session_of(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[3])
