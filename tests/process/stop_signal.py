"""SIGTERM for a program with a loop: waited for between two turns, and not handled in one.

A handler that sets a ``threading.Event`` waits for ever where it interrupts that event's own
``wait``, which has the lock then.
"""

from __future__ import annotations

import signal

_STOP = {signal.SIGTERM}


def hold_back() -> None:
    """From now on SIGTERM waits for ``came``; call it before there are other threads."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)


def came(within_s: float) -> bool:
    """Wait for the signal; whether it came."""
    return signal.sigtimedwait(_STOP, within_s) is not None
