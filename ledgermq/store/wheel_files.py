"""Files of RocketMQ 5's timer wheel: read, set aside when its timers are ours, and handed back.

``timerwheel`` and ``timerlog/`` only repeat what the log has. What a node has taken over lies in
``ROOT/ledgermq/rocketmq-wheel`` from then on, and ``config/timercheck`` says that all of the
wheel's queue is done with. ``ROOT/ledgermq/handed-timers.json`` says which of our timers RocketMQ
was handed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.timer_wheel import (
    TIMER_LOG_SIZE,
    WHEEL_MS,
    TimerCheck,
    WheelEntry,
    timer_log,
)
from ledgermq.model.errors import refused_as
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.disk_sync import make_directories, sync_content, sync_directory
from ledgermq.store.files.file_names import file_name, own_names
from ledgermq.store.files.small_file import read_file, replace_file

WHEEL = "timerwheel"
TIMER_LOG = "timerlog"
HANDED = "handed-timers.json"
ASIDE = "rocketmq-wheel"


class Handed(NamedTuple):
    """Timers of ours that RocketMQ was handed: those due before ``until_ms`` that stood below queue
    offset ``end``; ``before_ms`` is what the wheel's checkpoint said then.
    """

    before_ms: int
    until_ms: int
    end: int


class WheelFiles:
    """The files below one store directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._check = root / "config" / "timercheck"
        self._own = root / "ledgermq"

    def check(self) -> TimerCheck | None:
        """What the wheel's checkpoint says; None: there is none.

        Raises:
            StorageError: it cannot be read.
        """
        return TimerCheck.read(read_file(self._check) or b"")

    def handed(self) -> Handed | None:
        """What RocketMQ was handed; None: nothing.

        Raises:
            StorageError, CorruptLogError: the file cannot be read.
        """
        found = ConfigFile(self._own / HANDED).load()
        numbers = [found.get(name) for name in Handed._fields]
        whole = [number for number in numbers if isinstance(number, int)]
        return Handed(*whole) if len(whole) == len(Handed._fields) else None

    def set_aside(self, end: int) -> None:
        """Take the wheel out of RocketMQ's sight: all that waits in it below ``end`` is ours.

        What was set aside before goes.

        Raises:
            StorageError: the operating system refused; to be called again.
        """
        with refused_as("RocketMQ's timer wheel not set aside", path=self._root):
            aside = self._own / ASIDE
            for name in (TIMER_LOG, WHEEL):
                source, target = self._root / name, aside / name
                if not source.exists():
                    continue
                make_directories(aside)
                if target.is_dir():
                    shutil.rmtree(target)
                source.replace(target)
                sync_directory(aside)
                sync_directory(self._root)
            check = self.check()
            if check is not None and check != (done := TimerCheck(check[0], 0, end, end)):
                self._write_check(done)
            for path in (self._own / HANDED, self._own / f"{HANDED}.bak"):
                path.unlink(missing_ok=True)

    def hand(self, entries: list[WheelEntry], *, now_ms: int, ends: tuple[int, int]) -> int:
        """Make a timer log of which RocketMQ makes its wheel; how large a file of it is, bytes.

        Args:
            entries: due up to ``WHEEL_MS`` after ``now_ms``.
            now_ms: a whole second.
            ends: queue offsets behind the last message of the wheel's queue, and of our timers'.

        Raises:
            StorageError: the operating system refused; to be called again.
        """
        folder = self._root / TIMER_LOG
        size = self._timer_log_size()
        with refused_as("timer log not written", path=folder):
            self.set_aside(ends[0])
            handed = Handed(now_ms, now_ms + WHEEL_MS, ends[1])
            ConfigFile(self._own / HANDED).save(handed._asdict())
            make_directories(folder)
            written = 0
            for content in timer_log(entries, now_ms=now_ms, file_size=size):
                with (folder / file_name(written)).open("wb") as file:
                    file.write(content)
                    file.truncate(size)
                    file.flush()
                    sync_content(file.fileno())
                written += size
            sync_directory(folder)
            sync_directory(self._root)
            # From the first unit on RocketMQ looks at each, and makes the wheel.
            self._write_check(TimerCheck(now_ms, 0, ends[0], ends[0]))
        return size

    def _timer_log_size(self) -> int:
        for folder in (self._root / TIMER_LOG, self._own / ASIDE / TIMER_LOG):
            names = own_names(folder) if folder.is_dir() else []
            for name in names:
                return (folder / name).stat().st_size
        return TIMER_LOG_SIZE

    def _write_check(self, check: TimerCheck) -> None:
        """Write it with its old time: by that is told whether RocketMQ has had the store last."""
        make_directories(self._check.parent)
        changed_ns = self._check.stat().st_mtime_ns if self._check.exists() else 0
        replace_file(self._check, check.written_to(read_file(self._check) or b""))
        os.utime(self._check, ns=(changed_ns, changed_ns))
