"""Clock checks: whether something keeps the machine's clock right (adjtimex)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

from ledgermq.doctor.finding import Diagnosis, ok, warn
from ledgermq.doctor.subject import Subject

ERROR_MAX_MS = 1_000
_TIME_ERROR = 5
_STA_UNSYNC = 0x40


class _Timex(ctypes.Structure):
    """``struct timex`` of Linux on 64-bit machines, up to what is read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock_checks(_subject: Subject) -> Iterator[Diagnosis]:
    """One finding: synchronised, and how far off the clock may be."""
    state, error_ms, is_unsynced = kernel_clock()
    limit = f"synchronised, at most {ERROR_MAX_MS} ms off"
    change = (
        "install chrony or systemd-timesyncd and let it run: the times of messages, delays and"
        " retention are those of the leader's clock"
    )
    if state == _TIME_ERROR or is_unsynced:
        yield warn("clock.synchronised", "nothing synchronises it", limit=limit, change=change)
    elif error_ms > ERROR_MAX_MS:
        yield warn("clock.synchronised", f"up to {error_ms} ms off", limit=limit, change=change)
    else:
        yield ok("clock.synchronised", f"synchronised, at most {error_ms} ms off", limit=limit)


def kernel_clock() -> tuple[int, int, bool]:
    """State of the clock, its largest error in ms, and whether the kernel calls it unsynchronised.

    Raises:
        OSError: the kernel does not tell.
    """
    asked = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return state, asked.maxerror // 1_000, bool(asked.status & _STA_UNSYNC)
