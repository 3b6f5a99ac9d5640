"""A disk that forgets what was not synced when its power fails: ``powerfs.cpp``, built and driven.

Policies say what of the rest is there all the same: POSIX promises none of it, and file systems and
disks keep more or less of it, in one order or another.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("powerfs.cpp")
BUILT = Path(__file__).resolve().parents[2] / "build" / "powerfs"
"""A program of each state of the source; ``make clean`` removes them."""

PACKAGES = "packaging/install-tools.sh power"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a disk keeps of that which was not synced; ``powerfs.cpp`` explains the words."""

    data: str
    names: str
    sector: int = 4096

    def __str__(self) -> str:
        """As the order of a crash has it."""
        return f"{self.data} {self.names} {self.sector}"


STRICT = Policy("none", "none")
"""Nothing but what POSIX promises."""

POLICIES = (
    STRICT,
    STRICT,
    Policy("none", "all"),
    Policy("none", "prefix"),
    Policy("random", "prefix"),
    Policy("random", "prefix", 512),
    Policy("random", "all", 512),
    Policy("random", "none", 512),
    Policy("all", "none"),
)


@functools.cache
def why_not() -> str:
    """Why there can be no such disk here; empty when there can."""
    if os.geteuid() != 0:
        return "mounting a file system and a boot_id of its own need root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be opened: {error.strerror}"
    tools = ("g++", "pkg-config", "fusermount3", "unshare", "mount")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}: {PACKAGES}"
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        return f"libfuse3 has no headers here: {PACKAGES}"
    try:
        program()
    except subprocess.CalledProcessError as error:
        return f"powerfs.cpp does not compile here: {error.stderr.strip()[:200]}"
    words = ["unshare", "-m", "--propagation", "slave", "true"]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no mount namespace: {refused.stderr.strip()}" if refused.returncode else ""


def program() -> Path:
    """The compiled file system; compiled where this state of its source was not yet.

    Raises:
        CalledProcessError: it does not compile; ``stderr`` has the compiler's words.
    """
    path = BUILT / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        # Tests run beside one another.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            flags = ["pkg-config", "--cflags", "--libs", "fuse3"]
            found = subprocess.run(flags, check=True, capture_output=True, text=True).stdout
            fresh = path.with_suffix(".new")
            subprocess.run(
                ["g++", "-O2", "-std=c++17", "-Wall", "-Wextra", "-o", str(fresh), str(SOURCE),
                 *found.split(), "-lpthread"],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            fresh.rename(path)
    return path


class ForgetfulDisk:
    """One such disk; it is empty, and mounted, at first."""

    def __init__(self, folder: Path) -> None:
        """Mount it at ``folder``, which is made."""
        folder.mkdir(parents=True)
        self.folder = folder
        self._process = subprocess.Popen(
            [program(), folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.mount()

    def mount(self) -> None:
        """Mount it again, after it has forgotten."""
        self._order("mount")

    def cut(self) -> None:
        """The power fails: from now on whoever asks it for something hangs."""
        self._order("cut")

    def forget(self, policy: Policy, seed: int) -> str:
        """What a cut is followed by, once its users are dead; what was forgotten, in words."""
        return self._order(f"crash {policy} {seed}")

    def arm(self, change: int) -> None:
        """The power fails before the ``change``-th write, sync or change of a name from now on."""
        self._order(f"arm {change}")

    @property
    def is_cut(self) -> bool:
        """Whether the power has failed."""
        return self._order("frozen").split()[0] == "1"

    @property
    def changes(self) -> int:
        """How many calls have changed something so far."""
        return int(self._order("frozen").split()[1])

    def lie(self) -> None:
        """From now on a sync says that it is done, and does nothing."""
        self._order("lie 1")

    def keep_a_journal(self) -> None:
        """From now on an fsync of anything takes all names before it along, as with ext4."""
        self._order("journal 1")

    def fail_next_sync(self, word: str) -> None:
        """The next fsync of a file with ``word`` in its path is an EIO.

        What it was to make durable is lost, but the kernel shows it as long as it has it in memory,
        and calls it clean: the next fsync succeeds, and does nothing for it.
        """
        self._order(f"fail {word}")

    def refuse(self, error: int, word: str) -> None:
        """Every write to a file with ``word`` in its path fails so from now on; 0: none does.

        The file system tells of room all the while, as one with a quota, or on a thin volume.
        """
        self._order(f"refuse {error} {word}")

    @property
    def failed_syncs(self) -> int:
        """How many there were."""
        return int(self._order("failed"))

    def remove(self) -> None:
        """Unmount it for good; its users are dead, or get errors."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _order(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer.startswith("ok"), (line, answer)
        return answer[3:]


@contextmanager
def forgetful_disks() -> Iterator[Callable[[Path], ForgetfulDisk]]:
    """Makes disks, each at a folder; all are removed at the end."""
    disks: list[ForgetfulDisk] = []

    def make(folder: Path) -> ForgetfulDisk:
        disks.append(ForgetfulDisk(folder))
        return disks[-1]

    try:
        yield make
    finally:
        for disk in disks:
            disk.remove()


def draw_policy(chance: random.Random) -> Policy:
    """One of ``POLICIES``, drawn."""
    return chance.choice(POLICIES)
