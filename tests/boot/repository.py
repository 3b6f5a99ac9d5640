"""A signed apt repository of packages of this checkout, as hosts get it from a web server."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.boot import root
from tests.boot.machine import Machine

HOST = "packages.example"
"""Where the operating pages have it."""
URL = f"http://{HOST}/ledgermq"
SOURCES = "/etc/apt/sources.list.d/ledgermq.sources"


class Repository:
    """What ``make apt-repo`` makes, again and again with more packages in it.

    Args:
        folder: where it is; a web server gives out what is above it.
        url: where hosts find it.
        keys: gpg's folder, with one key.
    """

    def __init__(self, folder: Path, url: str, keys: Path) -> None:
        self.folder = folder
        self.url = url
        self._keys = keys

    def add(self, *packages: Path) -> None:
        """Packages that it has from then on, beside those that it had."""
        done = subprocess.run(
            [root.CHECKOUT / "packaging" / "make-apt-repo.sh", "--key", "tests@ledgermq.example",
             "--url", self.url, "--output", self.folder, *packages],
            env={**os.environ, "GNUPGHOME": str(self._keys)},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@contextmanager
def signing_key() -> Iterator[Path]:
    """A folder of gpg's with a key that is thrown away."""
    # The agent's socket is in it, and its path must be short.
    with tempfile.TemporaryDirectory(prefix="lmq-gpg-") as folder:
        environment = {**os.environ, "GNUPGHOME": folder}
        subprocess.run(
            ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key",
             "LedgerMQ tests <tests@ledgermq.example>", "ed25519", "sign", "never"],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
        try:
            yield Path(folder)
        finally:
            subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True)


def serve(machine: Machine, folder: str) -> None:
    """Have a machine find the repository that it sees in ``folder`` at ``URL``, and no other.

    The web server is the machine's own, for it has no network that leads anywhere.
    """
    machine.run(
        f"systemctl stop packages 2>/dev/null; grep -q {HOST} /etc/hosts ||"
        f" echo 127.0.0.1 {HOST} >>/etc/hosts; systemd-run --quiet --unit=packages"
        f" python3 -m http.server --bind 127.0.0.1 --directory {folder} 80"
    )
    machine.wait_until(
        lambda: (
            machine.run(f"wget -q -O /dev/null {URL}/ledgermq.asc", check=False).returncode == 0
        ),
        "the web server to answer",
    )


def know(machine: Machine) -> None:
    """Have a machine know the repository that it is served."""
    machine.run(f"wget -q -O {SOURCES} {URL}/{root.SUITE}.sources")
