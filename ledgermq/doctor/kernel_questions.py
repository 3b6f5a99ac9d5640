"""Questions of checks to the kernel, which a container may refuse."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from ledgermq.doctor.finding import Diagnosis, warn


def asked(name: str, what: str, look: Callable[[], Diagnosis]) -> Diagnosis:
    """What ``look`` finds with the kernel's help; a warning where this process may not have it.

    Containers refuse calls, and hide files of ``/proc`` and ``/sys`` or show empty ones.

    Args:
        name: of the check.
        what: the kernel is asked for.
    """
    try:
        return look()
    except (OSError, psutil.Error, LookupError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return warn(
            name,
            f"not measured: this container may not ask the kernel for {what} ({reason})",
            limit="measured",
            change="nothing, for the node works without; or run doctor on the host itself, as root",
        )
