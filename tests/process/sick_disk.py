"""A disk that fails by its kernel: every access behind the device's first MiB is an EIO.

The loop device below a node's file system is made shorter while mounted (``lo_sizelimit``), so
that what the file system asks of it lies beyond its end. Nothing in our processes is replaced.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path

from tests.process.full_disk import SmallDisk

_GET_STATUS, _SET_STATUS = 0x4C05, 0x4C04
_STATUS_SIZE = 232
_LIMIT_AT = 32  # ``lo_sizelimit`` of ``struct loop_info64``; 0 is no limit
LEFT = 1024 * 1024


class SickDisk:
    """The device below a ``SmallDisk``."""

    def __init__(self, disk: SmallDisk) -> None:
        """It is well so far."""
        self._disk = disk
        found = subprocess.run(
            ["losetup", "--associated", str(disk.image), "--output", "NAME", "--noheadings"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self._device = Path(found.stdout.strip())

    def fail(self) -> None:
        """From now on reads of what is not in memory, writes and syncs fail with EIO."""
        self._set_limit(LEFT)

    def heal(self) -> None:
        """Check and mount it again, as after a change of the cable; nobody has it open."""
        self._set_limit(0)
        self._disk.unmount(keep_image=True)
        # 1: it has mended something.
        checked = subprocess.run(
            ["e2fsck", "-f", "-y", str(self._disk.image)], check=False, capture_output=True
        )
        assert checked.returncode in (0, 1), checked
        self._disk.mount_image()

    def _set_limit(self, size: int) -> None:
        fd = os.open(self._device, os.O_RDWR)
        try:
            status = bytearray(_STATUS_SIZE)
            fcntl.ioctl(fd, _GET_STATUS, status)
            struct.pack_into("=Q", status, _LIMIT_AT, size)
            fcntl.ioctl(fd, _SET_STATUS, status)
        finally:
            os.close(fd)
