"""Tests in a network and a resolver of their own: real ``getaddrinfo``, real DNS, no other's files.

A test that is marked so runs in a process of its own, in new namespaces: there it is root, port 53
of the loopback is free, and ``/etc/resolv.conf`` names a server that the test is.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.suite.patience import PATIENCE_S

INSIDE = "LEDGERMQ_OWN_NETWORK"
FILES = {
    "hosts": "127.0.0.1 localhost\n",
    "resolv.conf": "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n",
    "nsswitch.conf": "hosts: files dns\n",
}
_SCRIPT = """
set -e
ip link set lo up
# All of them are addresses of this machine, as those of 127 are.
ip address add 10.9.0.1/16 dev lo
folder=$1; shift
for name in hosts resolv.conf nsswitch.conf; do mount --bind "$folder/$name" "/etc/$name"; done
exec "$@"
"""
_NAMESPACES = ("unshare", "--map-root-user", "--mount", "--net", "--ipc")


@functools.cache
def refusal() -> str:
    """Why no such namespaces can be made here; empty where they can."""
    missing = [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]
    if missing:
        return f"there is no {', '.join(missing)} (Debian: util-linux, iproute2)"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            _command(_written(Path(folder)), "true"), capture_output=True, text=True, check=False
        )
    return done.stderr.strip() if done.returncode else ""


def in_own_network(test: Callable[..., None]) -> Callable[..., None]:
    """Run ``test`` there; skipped where namespaces cannot be made."""
    if os.environ.get(INSIDE):
        return test

    def run(request: pytest.FixtureRequest) -> None:
        if refusal():
            pytest.skip(f"no namespaces can be made here: {refusal()}")
        place = f"{request.path}::{request.node.name}"
        with tempfile.TemporaryDirectory() as folder:
            command = _command(
                _written(Path(folder)),
                *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", place),
            )
            done = subprocess.run(
                command,
                env={**os.environ, INSIDE: "1"},
                cwd=request.config.rootpath,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=5 * PATIENCE_S,
                check=False,
            )
        assert done.returncode == 0 and " passed" in done.stdout, done.stdout

    # Not ``functools.wraps``: pytest would make the fixtures of the test here, too.
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


def _written(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def _command(folder: Path, *words: str) -> list[str]:
    return [*_NAMESPACES, "sh", "-c", _SCRIPT, "sh", str(folder), *words]
