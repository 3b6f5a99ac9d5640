"""Simulated disk: real files, and what of them a power failure would leave.

The files are in memory (tmpfs, where there is one). Whenever the node makes something durable
(``store.files.disk_sync``) its content is noted here. A power failure then leaves, chosen by the
seed:

* of each directory the names that were made durable last, or those that stand there now;
* of each file, page by page, the durable content, the present one, or a page that is torn at the
  border of a sector;
* of a file whose length was changed since, the one length or the other.

And it may do what no disk should: turn a bit of what was synced (``flip``), or lose it (``lose``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

PAGE_SIZE = 4_096
SECTOR_SIZE = 512


class Flip(NamedTuple):
    """One bit that the disk turned."""

    path: Path
    offset: int
    bit: int


class Disk:
    """Files below ``root``; the node that owns them writes them as it always does."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root = root
        self._below = f"{root}{os.sep}"
        self._random = random
        self._content: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self.hold_back = False
        self._held: list[tuple[int, bytes]] = []

    def format(self) -> None:
        """All that is there now is durable."""
        for folder in self._folders():
            self._names[folder] = _names(folder)
            for path in folder.iterdir():
                if path.is_file():
                    self._content[path.stat().st_ino] = path.read_bytes()

    def owns(self, name: str) -> bool:
        """Whether ``name`` is the path of a file of this disk, or of its root."""
        return f"{name}{os.sep}".startswith(self._below)

    def synced(self, fd: int, path: Path) -> None:
        """What ``fd`` has open is durable now, or with ``hold_back`` once it is let go."""
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            self._names[path] = _names(path)
            return
        # Not through ``fd``, which may be for writing alone.
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            content = file.read()
        if self.hold_back:
            self._held.append((status.st_ino, content))
        else:
            self._content[status.st_ino] = content

    def let_go(self, *, durable: bool) -> None:
        """The sync whose content was held back has returned, or a power failure came before."""
        if durable:
            self._content.update(self._held)
        self._held.clear()

    def power_failure(self) -> None:
        """Nobody has a file open; afterwards the files are what the disk kept."""
        for folder in self._folders():
            self._fail_folder(folder)

    def flip(self, path: Path, low: int, high: int) -> Flip:
        """Turn one bit of ``path``, somewhere from ``low`` to before ``high``."""
        offset = self._random.randrange(low, high)
        bit = self._random.randrange(8)
        self._spoil(path, lambda content: _flipped(content, offset, bit))
        return Flip(path, offset, bit)

    def lose(self, path: Path, low: int, high: int) -> None:
        """Make zeros of ``path`` from ``low`` to before ``high``, whatever was synced there."""
        self._spoil(path, lambda content: content[:low] + bytes(high - low) + content[high:])

    def _spoil(self, path: Path, change: Callable[[bytes], bytes]) -> None:
        """Change what stands in ``path``, what was synced, and what is being synced."""
        present = path.read_bytes()
        with path.open("r+b") as file:
            file.write(change(present))
            ino = os.fstat(file.fileno()).st_ino
        self._content[ino] = change(self._content[ino])
        self._held = [
            (held, change(content) if held == ino else content) for held, content in self._held
        ]

    def _folders(self) -> list[Path]:
        return sorted([self.root, *(path for path in self.root.rglob("*") if path.is_dir())])

    def _fail_folder(self, folder: Path) -> None:
        present = _names(folder)
        durable = self._names.get(folder, {})
        chosen = present if self._random.random() < 0.5 else durable
        current = {ino: (folder / name).read_bytes() for name, ino in present.items()}
        left: dict[str, bytes] = {}
        for name, ino in sorted(chosen.items()):
            kept = self._content.get(ino, b"")
            left[name] = self._mixed(kept, current.get(ino, kept))
        for name in present:
            if name not in left:
                (folder / name).unlink()
        for name, content in left.items():
            path = folder / name
            if present.get(name) != chosen[name] or current[chosen[name]] != content:
                path.unlink(missing_ok=True)
                path.write_bytes(content)
        self._names[folder] = _names(folder)
        for name, ino in self._names[folder].items():
            self._content[ino] = left[name]

    def _mixed(self, durable: bytes, present: bytes) -> bytes:
        """A file whose pages went to the disk, or did not."""
        if durable == present:
            return present
        size = len(present)
        if len(durable) != size:
            size = self._random.choice((len(durable), size))
        durable, present = durable.ljust(size, b"\0")[:size], present.ljust(size, b"\0")[:size]
        pages: list[bytes] = []
        for at in range(0, size, PAGE_SIZE):
            old, new = durable[at : at + PAGE_SIZE], present[at : at + PAGE_SIZE]
            if old == new:
                pages.append(new)
                continue
            cut = self._random.choice((0, PAGE_SIZE, self._random.randrange(8) * SECTOR_SIZE))
            pages.append(new[:cut] + old[cut:])
        return b"".join(pages)


class Disks:
    """All disks of a run, as a watcher of syncs."""

    def __init__(self) -> None:
        self.disks: list[Disk] = []

    def synced(self, fd: int) -> None:
        """Note it at the disk that the file is on."""
        name = str(Path(f"/proc/self/fd/{fd}").readlink())
        for disk in self.disks:
            if disk.owns(name):
                disk.synced(fd, Path(name))
                return


def _flipped(content: bytes, offset: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def _names(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder) if entry.is_file()}
