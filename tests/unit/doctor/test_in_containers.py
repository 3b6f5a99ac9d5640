"""A container that hides the kernel's files and refuses calls: that alone fails nothing."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.doctor.finding import PARTS
from tests.suite.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]

CLOCK_CALLS = {"x86_64": (159, 305), "aarch64": (171, 266)}
"""adjtimex(2) and clock_adjtime(2)."""

WITHOUT_CLOCK = """
import ctypes, errno, struct, sys

# The number of the call is compared with each; who asks for one of them gets EPERM.
calls = [int(word) for word in sys.argv.pop(1).split(",")]
steps = [(0x20, 0, 0, 0)]
steps += [(0x15, len(calls) - at, 0, call) for at, call in enumerate(calls)]
steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
code = b"".join(struct.pack("HBBI", *step) for step in steps)
buffer = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(buffer)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
from ledgermq.cli.main import main

sys.exit(main())
"""

MISSING = "mount -t tmpfs none /proc && mount -t tmpfs none /sys && "
EMPTY = "for one in meminfo locks sys/vm/swappiness; do mount --bind /dev/null /proc/$one; done; "
CLOCK = {"clock.synchronised": "its clock"}
REFUSED = {
    "": CLOCK,
    EMPTY: {**CLOCK, "host.memory": "its memory", "host.swap": "its swap"},
    MISSING: {
        **CLOCK,
        "host.memory": "its memory",
        "host.swap": "its swap",
        "host.overcommit": "what it promises of its memory",
        "limits.open-files": "its limits",
        "limits.locked-memory": "its limits",
        "disk.file-system": "its mounts",
        "ports.listen.consume": "its listeners",
        "ports.reserved": "its range of ports",
        "store.lock": "its locks",
    },
}
"""What is not measured, by the shell's line that hides it."""


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode
    != 0,
    reason="mounts of its own are not allowed here",
)
@pytest.mark.parametrize("hiding", REFUSED, ids=["refused", "empty", "missing"])
def test_what_a_container_hides_is_a_warning_and_the_rest_is_told(
    hiding: str, tmp_path: Path
) -> None:
    config, store = tmp_path / "node.toml", tmp_path / "store"
    store.mkdir()
    (store / "lock").touch()
    config.write_text(
        f'[store]\npath_root_dir = "{store}"\n[listen]\nruntime_dir = "{tmp_path}/run"\n'
        'consume = "tcp://127.0.0.1:23999"\ntrusted_network = true\n'
    )
    calls = ",".join(map(str, CLOCK_CALLS[platform.machine()]))
    words = ["unshare", "--mount", "sh", "-c", f'{hiding}exec "$@"', "sh", sys.executable, "-c"]
    words += [WITHOUT_CLOCK, calls, "doctor", "--json", "--config", str(config)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=ROOT
    )

    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    refused = {
        check: one["measured"].partition("may not ask the kernel for ")[2].partition(" (")[0]
        for check, one in found.items()
        if one["measured"].startswith("not measured: this container ")
    }
    assert (done.returncode, done.stderr) == (0, "")
    assert refused == REFUSED[hiding]
    assert {found[check]["verdict"] for check in refused} == {"WARN"}
    assert {check.partition(".")[0] for check in found} >= set(PARTS)
