"""The compiled kernels with the sanitizers of addresses and of undefined behaviour.

    python -m tests.suite.sanitized [TEST…]

The last commit is unpacked into a temporary folder and compiled there with them; the tests that
reach most of the kernels run on that, with all processes that they start. The exit status is 1
where a test fails, or a sanitizer has something to report, which is printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = (
    "tests/unit/formats",
    "tests/fuzz",
    "tests/unit/client/test_exchange.py",
    "tests/unit/members/test_member_streams.py",
    "tests/process/test_steady_wait.py",
    "tests/process/test_exchange.py",
    "tests/sim/test_waiting_writers.py",
)

_FLAGS = "-fsanitize=address,undefined -fno-sanitize=alignment -fno-omit-frame-pointer -g -O1"
"""Alignment is left out: fields of messages stand where their formats have them, and the machines
that we support read them there."""


def main(tests: Sequence[str]) -> int:
    """See the module's text."""
    with tempfile.TemporaryDirectory(prefix="lmq-sanitized-") as folder:
        tree, reports = Path(folder, "tree"), Path(folder, "reports")
        reports.mkdir()
        _unpack(tree)
        compiled = {"CFLAGS": _FLAGS, "LDFLAGS": _FLAGS}
        status = _call(["setup.py", "-q", "build_ext", "--inplace"], tree, compiled)
        if status == 0:
            running = {
                "PYTHONPATH": str(tree),
                # Each object is a block of its own then, with a fence around it.
                "PYTHONMALLOC": "malloc",
                "LD_PRELOAD": _library("libasan.so"),
                "ASAN_OPTIONS": f"detect_leaks=0:halt_on_error=1:log_path={reports}/address",
                "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={reports}/undefined",
            }
            words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not oracle"]
            status = _call([*words, *(tests or TESTS)], tree, running)
        found = sorted(reports.iterdir())
        for one in found:
            print(f"{one.name}:\n{one.read_text(errors='replace')}")
        print(f"sanitized: tests ended with {status}, reports: {len(found)}")
        return int(status != 0 or bool(found))


def _unpack(tree: Path) -> None:
    tree.mkdir()
    packed = tree.with_suffix(".tar")
    subprocess.run(["git", "archive", "-o", packed, "HEAD"], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", packed, "-C", tree], check=True)


def _library(name: str) -> str:
    asked = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def _call(words: Sequence[str], tree: Path, environment: Mapping[str, str]) -> int:
    return subprocess.run(
        [sys.executable, *words], cwd=tree, env={**os.environ, **environment}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
