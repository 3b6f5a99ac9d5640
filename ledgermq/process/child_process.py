"""Life of a child process: from the fork to its entry point, and its exit status."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NoReturn

import setproctitle

from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    OUT_OF_DESCRIPTORS,
    ConfigError,
    CorruptLogError,
    NewerVersionError,
    StorageError,
    StoreLockedError,
)
from ledgermq.model.events import Event
from ledgermq.model.exit_status import (
    EXIT_BUG,
    EXIT_CONFIG,
    EXIT_DESCRIPTORS,
    EXIT_OUTDATED,
    EXIT_STORAGE,
)
from ledgermq.process import log_lines
from ledgermq.process.settings import reload

FULL = 2
"""The oldest generation."""

GROWN_FACTOR = 2

LEFT_OUT_MIN = 250_000
"""Fewest objects that are left out of full collections: 40 MB, a sixth of a second to look at. A
process with all modules has 60,000, and 10,000 topics with their offsets are as many again."""

PER_FULL = 2
"""A full collection for so many of the generation below, instead of ten: each looks at what is new
since the last one, so that the sum stays the same, and each is a fifth of the pause."""

COUNTED_EACH = 16
"""Collections of which one counts what is left out: to count it is to walk through it."""


class FullCollections:
    """One for a process, which is told of all collections once it is installed.

    Invariant: ``_whole`` is how many objects were left when everything was looked at; before that,
    how many were left out when they were first counted, 0 until then: a process begins sooner that
    does not walk through all that it has imported.
    """

    def __init__(self) -> None:
        self._whole = 0
        self._until_counted = COUNTED_EACH
        self._is_everything = False

    def install(self) -> None:
        """Leave out what survives a full collection, from now on."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, PER_FULL)
        gc.callbacks.append(self._take)

    def _take(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] != FULL:
            return
        if self._is_everything:
            gc.freeze()
            self._whole, self._is_everything = gc.get_freeze_count(), False
            return
        gc.freeze()
        self._until_counted -= 1
        if self._until_counted == 0:
            self._until_counted = COUNTED_EACH
            left_out = gc.get_freeze_count()
            if not self._whole:
                self._whole = left_out
            elif left_out > max(GROWN_FACTOR * self._whole, LEFT_OUT_MIN):
                # The next one looks at everything.
                gc.unfreeze()
                self._is_everything = True


Entry = Callable[[Settings, StopFlag], int]
"""Runs a process until it is told to stop; its exit status."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 16 * 1024 * 1024
"""Free memory that malloc keeps: as much as the frames take that are on their way to two members,
``raft.in_flight_bytes`` each."""

logger = logging.getLogger(__name__)


def live(
    role: Role,
    entry: Entry,
    settings: Settings,
    *,
    supervisor_pid: int,
    leave: Callable[[], None],
    signals: Iterable[int],
) -> NoReturn:
    """Be the child ``role``, then exit; called right after the fork, with signals blocked.

    Args:
        role: which process to be.
        entry: what to run.
        settings: of the node.
        supervisor_pid: who forked.
        leave: closes what is the supervisor's alone.
        signals: the mask of blocked signals to go back to.
    """
    status = EXIT_BUG
    try:
        stop = _become(role, settings, supervisor_pid, leave)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        status = entry(settings, stop)
    except BaseException as error:  # also SystemExit: nothing may return into the supervisor's code
        status = exit_status_of(error)
        _log_failure(error, status)
    finally:
        _flush()
        os._exit(status)


def keep_freed_memory() -> None:
    """Have malloc keep up to ``KEPT_BYTES`` that are free, in each of its arenas.

    Frames of entries are taken and given back by the megabyte. By default each of them comes from
    the kernel and goes back, and a fault for each page of it costs more than what is done with it.
    For a process that has hardly anything else on its heap, so that what is kept is no more.
    Nothing happens where the C library is not glibc.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        _libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when ``parent_pid``, its parent, dies."""
    _ask_kernel(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        # It died between the fork and the call, so no signal will come.
        os._exit(EXIT_BUG)


def adopt_orphans() -> None:
    """Have this process get the children of those below it that die: it can wait for them all."""
    _ask_kernel(_PR_SET_CHILD_SUBREAPER, 1)


def _ask_kernel(what: int, value: int) -> None:
    if _prctl(what, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def exit_status_of(error: BaseException) -> int:
    """Exit status of a process that ``error`` ended."""
    if isinstance(error, NewerVersionError):
        return EXIT_OUTDATED
    if getattr(error, "errno", None) in OUT_OF_DESCRIPTORS:
        # Connections that are closed by a new start have them, and not a disk.
        return EXIT_DESCRIPTORS
    if isinstance(error, ConfigError):
        return EXIT_CONFIG
    if isinstance(error, StorageError | CorruptLogError | StoreLockedError):
        return EXIT_STORAGE
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        # Nobody expected it, so nobody knows whether it came from an fsync: never go on.
        return EXIT_STORAGE
    return EXIT_BUG


def _become(
    role: Role, settings: Settings, supervisor_pid: int, leave: Callable[[], None]
) -> StopFlag:
    die_with(supervisor_pid)
    # A terminal's Ctrl-C is for the supervisor, which stops its children one after the other.
    os.setpgid(0, 0)
    leave()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stop = StopFlag(on_reload=partial(reload.take_published, settings))
    stop.install()
    setproctitle.setproctitle(process_title(role, settings))
    log_lines.configure(role.title, settings.log, node=settings.node.self_id)
    if role is Role.RAFT:
        keep_freed_memory()
    FullCollections().install()
    return stop


def process_title(role: Role, settings: Settings) -> str:
    """What ``ps`` shows."""
    return f"ledgermq: {role.title} [{settings.node.self_id}]"


def _log_failure(error: BaseException, status: int) -> None:
    if status == EXIT_BUG:
        logger.critical(
            "process failed",
            exc_info=error,
            extra={"event": Event.PROCESS_FAILED, "status": status},
        )
    else:
        logger.critical(
            "process failed: %s", error, extra={"event": Event.PROCESS_FAILED, "status": status}
        )


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Who reads our output is gone; there is nobody left to tell.
            continue
