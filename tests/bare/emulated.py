"""Programs of arm64 on a machine of another kind: by qemu-user, for one command at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FORMAT = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
POLL_S = 0.01

_WITHIN = """
set -e
read -r _ <&"$1"
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
cat "$2" >/proc/sys/fs/binfmt_misc/register
shift 2
exec setpriv --pdeathsig=KILL --reuid=0 --regid=0 --clear-groups "$@"
"""


def prefix() -> list[str]:
    """Words before a command, in which programs of arm64 run, too."""
    return [sys.executable, "-m", __name__]


def why_not() -> str:
    """Why they cannot run here; empty when they can."""
    if not FORMAT.exists():
        return f"not installed: qemu-user-static ({FORMAT})"
    done = subprocess.run([*prefix(), "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() and f"no binary formats of its own: {done.stderr.strip()}"


def main(words: Sequence[str]) -> int:
    """Run a command in a user namespace with a table of binary formats of its own (Linux 6.7).

    Nothing is registered for the rest of the machine. Accounts are the same within.
    """
    waits, goes_on = os.pipe()
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig=KILL", "unshare", "--user", "--mount", "--pid", "--fork",
         "--kill-child", "--propagation=private", "bash", "-c", _WITHIN, "within", str(waits),
         str(FORMAT), *words],
        pass_fds=[waits],
    )  # fmt: skip
    own = Path("/proc/self/ns/user").readlink()
    while Path(f"/proc/{process.pid}/ns/user").readlink() == own:
        time.sleep(POLL_S)
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{process.pid}/{name}").write_text("0 0 65536\n")
    os.write(goes_on, b"\n")
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
