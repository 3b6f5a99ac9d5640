"""Debian hosts in a network of their own, as docs/operating has them: 10.0.0.1 and so on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.boot.machine import Machine
from tests.process.fault_namespaces import NamespaceNetwork

NETWORK = "10.0.0"


@contextmanager
def booted(
    folder: Path, count: int, roots: Sequence[Path], binds: Sequence[tuple[Path, str]]
) -> Iterator[dict[str, Machine]]:
    """Hosts by address; root of each may log in at each other one, by an administrator's key.

    Args:
        folder: for what they change; removed at the end.
        count: how many.
        roots: folders that together are the root of each, the uppermost first.
        binds: folders of this machine that they see, and where.
    """
    key = folder / "ssh"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    network = NamespaceNetwork(count, NETWORK)
    with ExitStack() as started:
        started.callback(network.close)
        hosts: dict[str, Machine] = {}
        for number in range(count):
            own = folder / f"host{number}"
            machine = Machine(own, roots, binds, namespace=network.namespace(number))
            started.callback(_remove, own)
            started.callback(machine.close)
            _let_in(machine.upper, key)
            machine.boot()
            hosts[network.address(number)] = machine
        yield hosts


def _let_in(root: Path, key: Path) -> None:
    """What an administrator has of ssh on every host."""
    home = root / "root" / ".ssh"
    home.mkdir(mode=0o700, parents=True)
    (root / "root").chmod(0o700)
    shutil.copy(key, home / "id_ed25519")
    shutil.copy(key.with_suffix(".pub"), home / "authorized_keys")
    (home / "config").write_text("StrictHostKeyChecking accept-new\nLogLevel ERROR\n")


def _remove(folder: Path) -> None:
    for name in ("upper", "work"):
        shutil.rmtree(folder / name, ignore_errors=True)
