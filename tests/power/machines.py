"""Nodes whose disk forgets when their power fails, and which come back as after a boot."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.power.forgetful_disk import STRICT, ForgetfulDisk, Policy, draw_policy
from tests.process.conftest import Node, is_alive, wait_until
from tests.process.group_nodes import Group, Member
from tests.suite.patience import PATIENCE_S

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Machine(Node):
    """A node with a disk and a boot of its own.

    Each start has another ``boot_id``, in a mount namespace. Nodes look there to know whether the
    page cache has survived: with the id of before they would trust what the disk has forgotten, and
    we should find faults that no power failure has. What lies in the runtime directory, a tmpfs, is
    gone with the power.
    """

    def __init__(self, folder: Path) -> None:
        """Its disk is there, and empty."""
        super().__init__(folder)
        self.disk = ForgetfulDisk(folder / "disk")
        self.root = self.disk.folder / "store"
        self.stays_up = False
        """Whether the next start is none of the machine: it has the same boot, and page cache."""
        self._boots = 0

    def launch(self, command: list[str], *, prefix: tuple[str, ...] = (), **how: Any) -> None:
        """Boot: the supervisor leads a session, by which all its processes are found."""
        self._boots += not self.stays_up
        boot_id = self.folder / "boot_id"
        boot_id.write_text(f"{self._boots:08x}-1111-4111-8111-{os.getpid():012x}\n")
        shutil.rmtree(self.runtime, ignore_errors=True)
        bound = f'mount --bind "$0" {BOOT_ID} && exec "$@"'
        words = ("setsid", "unshare", "-m", "--propagation", "slave", "sh", "-c", bound)
        super().launch(command, prefix=(*words, str(boot_id), *prefix), **how)

    def cut(self) -> None:
        """The power is gone: whoever wants something of the disk hangs. ``forget`` comes next."""
        self.disk.cut()

    def forget(self, policy: Policy, seed: int) -> str:
        """What has no power forgets; the disk is there again. What was forgotten, in words."""
        self._kill()
        forgotten = self.disk.forget(policy, seed)
        # Who hung in a call is dead only once it has an answer.
        if self.process is not None:
            self.process.wait(PATIENCE_S)
        wait_until(lambda: not self._kill(), "the death of a node", PATIENCE_S)
        shutil.rmtree(self.runtime, ignore_errors=True)
        self.disk.mount()
        return f"[{policy}] {forgotten}"

    def end(self) -> None:
        """Kill what runs, and wait until it has ended; its disk may be cut."""
        if self.process is not None:
            self.forget(STRICT, 0)

    def destroy(self) -> None:
        """Leave nothing running, nor mounted."""
        super().destroy()
        self.disk.remove()

    def _kill(self) -> list[int]:
        if self.process is None:
            return []
        numbers = [path.name for path in Path("/proc").iterdir()]
        pids = [pid for pid in map(int, filter(str.isdigit, numbers)) if self._has(pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def _has(self, pid: int) -> bool:
        assert self.process is not None
        try:
            return os.getsid(pid) == self.process.pid and is_alive(pid)
        except ProcessLookupError:
            return False


class Powers:
    """Who has power: fails, forgets by chance, comes back.

    Attributes:
        failures: how often the power of some machine has failed.
        of_all: how often that of all had failed at once.
    """

    def __init__(self, seed: int, *, policy: Policy | None = None) -> None:
        """Without a policy, one is drawn for each machine and failure."""
        self.chance = random.Random(seed)
        self.failures = 0
        self.of_all = 0
        self._policy = policy

    def fail(self, group: Group, members: Sequence[Member] | None = None) -> None:
        """Let the power of these members, or of all, fail now; they do not run then."""
        failing = list(group.members if members is None else members)
        machines = [machine_of(member) for member in failing]
        self.chance.shuffle(machines)
        for machine in machines:
            machine.cut()
        told = [
            machine.forget(self._policy or draw_policy(self.chance), self.chance.randrange(1 << 30))
            for machine in machines
        ]
        self.failures += 1
        self.of_all += len(failing) == len(group.members)
        names = ", ".join(member.name for member in failing)
        print(f"power failure {self.failures} of {names}: {'; '.join(told)}"[:600], flush=True)

    def restore(self, members: Sequence[Member]) -> None:
        """Start these, and wait until they are ready."""
        for member in members:
            member.start()
        for member in members:
            wait_ready(member)


def machine_of(member: Member) -> Machine:
    """The machine of a member of a group that was made of machines."""
    assert isinstance(member.node, Machine)
    return member.node


def wait_ready(member: Member) -> None:
    """Until a member that was started says that it is ready; fails when it ends."""
    node = member.node

    def is_ready() -> bool:
        process = node.process
        assert process is not None and process.poll() is None, node.log.read_text()[-3_000:]
        return "READY=1" in node.listen()

    try:
        wait_until(is_ready, f"{member.name} to be ready", PATIENCE_S)
    except AssertionError as error:
        error.add_note(node.log.read_text()[-3_000:])
        raise


def sync_all(folder: Path) -> None:
    """Make all that is below a folder durable, and its own name."""
    for path in (folder.parent, folder, *folder.rglob("*")):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
