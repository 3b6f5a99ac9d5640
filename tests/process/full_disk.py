"""A small file system of its own for each node, to be filled; needs root and loop devices."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.process.conftest import Node, wait_until

SIZE = 96 * 1024 * 1024
TOOLS = ("mkfs.ext4", "e2fsck", "mount", "umount", "losetup")


def why_not() -> str:
    """Why no file system can be mounted here; empty when one can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    found = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else f"no loop device: {found.stderr.strip()}"


class SmallDisk:
    """An ext4 file system of 96 MiB, and ballast in it."""

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "disk"
        self.image = folder / "image"
        self._ballast = self.mount / "ballast"

    def make(self) -> None:
        """Mount it, empty."""
        self.mount.mkdir()
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(self.image)], check=True)
        self.mount_image()

    def mount_image(self) -> None:
        """Mount it as it is; what its device refuses is told, and no reason to panic."""
        words = ["mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.mount)]
        subprocess.run(words, check=True)

    def unmount(self, *, keep_image: bool = False) -> None:
        """Take it away; who had files open has just ended."""
        command = ["umount", str(self.mount)]
        wait_until(
            lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0,
            "the disk to be unmounted",
        )
        if not keep_image:
            self.image.unlink()

    @property
    def free(self) -> int:
        """Bytes that can be taken."""
        found = os.statvfs(self.mount)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave: int = 0) -> None:
        """Take all but ``leave`` bytes."""
        with self._ballast.open("ab") as file:
            at, most = file.tell(), SIZE
            while (step := min(most, self.free - leave)) >= 4_096:
                try:
                    os.posix_fallocate(file.fileno(), at, step)
                    at += step
                except OSError:
                    # What is free is not all for the bytes of one file.
                    most = step // 2

    def give_back(self) -> None:
        """Free what was taken."""
        self._ballast.unlink()


class SmallMemory(SmallDisk):
    """A tmpfs of 96 MiB: there even to read a hole through a map takes space."""

    def mount_image(self) -> None:
        """Mount it; it is empty then."""
        words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(self.mount)]
        subprocess.run(words, check=True)

    def make(self) -> None:
        """Mount it, empty."""
        self.mount.mkdir()
        self.image.touch()
        self.mount_image()


@contextmanager
def small_disks(
    make_node: Callable[[], Node], kind: type[SmallDisk] = SmallDisk
) -> Iterator[Callable[[], Node]]:
    """Makes nodes whose stores are on a disk of their own, ``node.disk``; unmounts at the end."""
    made: list[tuple[Node, SmallDisk]] = []

    def make() -> Node:
        node = make_node()
        disk = kind(node.folder)
        disk.make()
        node.root = disk.mount / "store"
        made.append((node, disk))
        return node

    try:
        yield make
    finally:
        for node, disk in made:
            node.end()
            disk.unmount()


def disk_of(node: Node) -> SmallDisk:
    """The disk that ``small_disks`` has made for ``node``."""
    return SmallDisk(node.folder)
