"""A throw-away Debian 12 machine with systemd as PID 1, in a container of systemd-nspawn."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 90.0
POLL_S = 0.1

# The container's cgroups are a unified tree, below a group of its own: several machines run at the
# same time, and a host may have the tree of version 1 in its place.
_BOOT = """
set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$3"
echo $$ >"/sys/fs/cgroup/$3/cgroup.procs"
name=$3 folder=$2
shift 3
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
exec systemd-nspawn --quiet --register=no --keep-unit --console=read-only \
    --machine="$name" --directory="$folder/root" "$@" \
    --boot systemd.unit=multi-user.target systemd.show_status=0
"""
_DELETE_GROUPS = """
mount -t cgroup2 none /sys/fs/cgroup
find "/sys/fs/cgroup/$1" -depth -type d -exec rmdir {} + 2>/dev/null
"""
_ENVIRONMENT = (
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
    "SYSTEMD_PAGER=",
    "SYSTEMD_COLORS=0",
    "COLUMNS=200",
)


class Machine:
    """One machine: its changes to the root are in ``folder``, and are there at its next boot.

    Args:
        roots: folders that together are its root, the uppermost first; they stay as they are.
        binds: folders of this machine that it sees, and where.
        disk: a folder that it may write, and where it sees it.
        namespace: name of the network namespace that it is in; empty for one of its own, without
            a way out.
    """

    def __init__(
        self,
        folder: Path,
        roots: Sequence[Path],
        binds: Sequence[tuple[Path, str]] = (),
        *,
        namespace: str = "",
        disk: tuple[Path, str] | None = None,
    ) -> None:
        self.folder = folder
        self.upper = folder / "upper"
        self.root = folder / "root"
        self._roots = roots
        self._options = [f"--bind-ro={source}:{target}" for source, target in binds]
        if disk is not None:
            self._options.append(f"--bind={disk[0]}:{disk[1]}")
        self._options.append(
            f"--network-namespace-path=/run/netns/{namespace}" if namespace else "--private-network"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._units = itertools.count()
        # Other machines of this host have names of their own.
        self._name = f"lmq-{os.getpid()}-{id(self):x}"
        for path in (self.upper, folder / "work", self.root):
            path.mkdir(parents=True, exist_ok=True)

    def boot(self) -> None:
        """Start it, and wait until all of its units have."""
        lower = ":".join(map(str, self._roots))
        with (self.folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "bash", "-c", _BOOT, "boot",
                 lower, str(self.folder), self._name, *self._options],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        self._init = self.wait_until(self._found_init, "PID 1 of the machine")
        self.wait_until(
            lambda: (
                self.run("systemctl is-system-running", check=False).stdout.strip()
                in ("running", "degraded")
            ),
            "the machine to have booted",
        )

    def power_off(self) -> None:
        """Stop it in order."""
        self.run("systemctl poweroff --no-block", check=False)
        self._wait_for_end()

    def cut_power(self) -> None:
        """End all of its processes at once; what its kernel has, which is ours, is not lost."""
        os.kill(self._init, signal.SIGKILL)
        self._wait_for_end()

    def close(self) -> None:
        """End it if it still runs; what it changed stays in its folder."""
        if self._process is None:
            return
        if self._process.poll() is None:
            if self._init and psutil.pid_exists(self._init):
                os.kill(self._init, signal.SIGKILL)
            else:
                self._process.terminate()
        self._wait_for_end()

    def run(
        self, command: str, *, check: bool = True, timeout_s: float = PATIENCE_S, typed: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a line of shell in the machine as root; with ``check`` it has to succeed.

        Args:
            typed: what the command is answered where it asks.
        """
        done = subprocess.run(
            self._shell(command), input=typed, capture_output=True, text=True, timeout=timeout_s,
            check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            told = f"{done.stdout}{done.stderr}"
            raise AssertionError(f"{command}: exit status {done.returncode}\n{told}")
        return done

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Have a command run in the machine as root during the block; SIGTERM ends it then."""
        unit = f"typed-{next(self._units)}"
        self.run(f"systemd-run --quiet --unit={unit} --working-directory=/root -- {command}")
        try:
            yield
        finally:
            self.run(f"systemctl stop {unit}")

    def _shell(self, command: str) -> list[str]:
        return [*self.inside(), "env", "-i", *_ENVIRONMENT, "bash", "-c", f"cd\n{command}"]

    def output(self, command: str) -> str:
        """What a line of shell that has to succeed prints, without the last newline."""
        return self.run(command).stdout.rstrip("\n")

    def inside(self, namespaces: str = "--mount --uts --ipc --net --pid --cgroup") -> list[str]:
        """Words that, before a command of this machine, run it in namespaces of that one."""
        return ["nsenter", "--target", str(self._init), *namespaces.split(), "--"]

    def seen(self, path: str) -> Path:
        """A file or socket of the booted machine, as this one reaches it."""
        return Path(f"/proc/{self._init}/root{path}")

    def wait_until(
        self, condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S
    ) -> Any:
        """What ``condition`` returns, once that is true."""
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "console").read_text()
            time.sleep(POLL_S)
        return value

    def unit(self, name: str, value: str) -> str:
        """A property of a unit, as ``ActiveState``."""
        return self.output(f"systemctl show --property={value} --value {name}")

    def wait_active(self, unit: str) -> None:
        """Until the unit is active; a unit that has failed for good fails this."""
        self.wait_until(
            lambda: self.unit(unit, "ActiveState") in ("active", "failed"), f"{unit} active"
        )
        assert self.unit(unit, "ActiveState") == "active", self.journal(unit)

    def journal(self, unit: str, count: int = 60) -> str:
        """The last lines of a unit."""
        return self.output(f"journalctl --no-pager --unit {unit} --lines {count}")

    def _found_init(self) -> int:
        assert self._process is not None
        try:
            children = psutil.Process(self._process.pid).children()
        except psutil.NoSuchProcess:
            return 0
        # Before it is systemd-nspawn, the process has other children: those of the shell.
        found = [child.pid for child in children if _name_of(child) in ("systemd", "init")]
        return found[0] if found else 0

    def _wait_for_end(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=PATIENCE_S)
        self._process = None
        self._init = 0
        subprocess.run(
            ["unshare", "--mount", "--propagation", "private",
             "bash", "-c", _DELETE_GROUPS, "delete", self._name],
            check=False, capture_output=True,
        )  # fmt: skip


def _name_of(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""
