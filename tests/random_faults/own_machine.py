"""Namespaces for a whole run: its processes, mounts and network end with it, however it ends.

A run is the first process of a pid namespace, so that nothing of it outlives it, not even where it
is killed; what it mounts nobody else sees; and its network has no way out.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from tests.suite.patience import PATIENCE_S

INSIDE = "LEDGERMQ_RANDOM_FAULTS_INSIDE"
_TOOLS = ("unshare", "nsenter", "setsid", "ip", "mount")
_COMMAND = (
    "unshare", "--map-root-user", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child",
    "--mount-proc",
)  # fmt: skip
_TRY = """
import fcntl, os, struct
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"t0", 0x1001))
"""


@functools.cache
def why_not() -> str:
    """Why no such machine can be made here; empty where one can."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        return f"there is no {', '.join(missing)} (Debian: util-linux, iproute2, mount)"
    words = [*_COMMAND, sys.executable, "-c", _TRY]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    return f"no namespaces with a TUN device: {lines[-1]}" if done.returncode else ""


def is_inside() -> bool:
    """Whether this process is in such a machine."""
    return os.environ.get(INSIDE) == "1"


def command(module: str, words: Sequence[str]) -> list[str]:
    """What runs ``python -m MODULE WORDS`` in one."""
    return [*_COMMAND, sys.executable, "-m", __name__, module, *words]


def in_own_machine(test: Callable[..., None]) -> Callable[..., None]:
    """Run ``test`` in one; skipped with the reason where none can be made."""
    if is_inside():
        return test

    def run(request: pytest.FixtureRequest) -> None:
        if reason := why_not():
            pytest.skip(reason)
        place = f"{request.path}::{request.node.name}"
        words = ["-q", "-x", "-p", "no:cacheprovider", place]
        done = subprocess.run(
            command("pytest", words), cwd=request.config.rootpath, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=5 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and " passed" in done.stdout, done.stdout

    # Not ``functools.wraps``: pytest would make the fixtures of the test here, too.
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


def _main(module: str, *words: str) -> int:
    """As the first process: start the run, bury whoever died meanwhile, and end as it did."""
    run = subprocess.Popen([sys.executable, "-m", module, *words], env={**os.environ, INSIDE: "1"})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: run.send_signal(got))
    while True:
        pid, status = os.wait()
        if pid == run.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
