"""A real PostgreSQL server of a test's own: a folder, a Unix socket in it, a port if asked for.

``packaging/install-tools.sh postgresql`` installs it; where there is none its tests are left out,
which ``LEDGERMQ_POSTGRESQL=1`` makes a failure. It refuses root, so root's tests run it as another
user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.suite.patience import PATIENCE_S

IS_REQUIRED = os.environ.get("LEDGERMQ_POSTGRESQL", "") not in ("", "0")
OWNER = "lake"
PORT = 5432
"""In the name of the socket, where no other one is asked for."""

UNPRIVILEGED = "postgres"
"""Who runs it where these tests are root's: Debian's package makes the user."""

SETTINGS = {
    "fsync": "off",
    "max_connections": "20",
    "shared_buffers": "16MB",
}
"""Nothing of it is to outlive the machine; what a server keeps when it is killed is in the log."""


def missing() -> str:
    """Why it cannot run here; empty where it can."""
    if _programs() is None:
        return "no PostgreSQL here (packaging/install-tools.sh postgresql)"
    if os.geteuid() == 0 and not any(one.pw_name == UNPRIVILEGED for one in pwd.getpwall()):
        return f"PostgreSQL refuses root, and there is no user {UNPRIVILEGED}"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no psycopg here (packaging/bootstrap.sh)"
    return ""


class SqlServer:
    """A server that can be killed and started again."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        """Make a cluster of databases in a folder that whoever runs the server may enter.

        Args:
            port: of loopback, where passwords are asked for; by the socket, nobody is asked.
        """
        found = _programs()
        assert found is not None
        self._programs = found
        self._folder = folder
        self._port = port or PORT
        self._addresses = "" if port is None else "127.0.0.1"
        self._place = f"user={OWNER} host={folder} port={self._port} dbname=postgres"
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(folder, UNPRIVILEGED)
        subprocess.run(
            [found / "initdb", "-D", folder / "data", "-U", OWNER, "--auth-local=trust",
             "--auth-host=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C"],
            check=True, capture_output=True, timeout=PATIENCE_S, **self._as_owner(),
        )  # fmt: skip

    def new_database(self) -> str:
        """Make one; its address, as SQLAlchemy has it."""
        import psycopg

        self._databases += 1
        name = f"lake_{self._databases}"
        with psycopg.connect(self._place, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql+psycopg://{OWNER}@/{name}?host={self._folder}&port={self._port}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        import psycopg

        told = {**SETTINGS, "listen_addresses": self._addresses, "port": self._port}
        words = [word for name, value in told.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder,
                 *words],
                stdout=log, stderr=log, **self._as_owner(),
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self._process.poll() is None, (self._folder / "log").read_text()[-2_000:]
            try:
                psycopg.connect(self._place).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "the server takes no connections"
                time.sleep(0.02)

    def kill(self) -> None:
        """End it and its processes at once: it comes up from its log, as after a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE_S)
            self._process = None

    def _as_owner(self) -> Mapping[str, object]:
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        if os.geteuid() != 0:
            return {"env": environment, "cwd": self._folder}
        owner = pwd.getpwnam(UNPRIVILEGED)
        return {
            "env": environment,
            "cwd": self._folder,
            "user": owner.pw_uid,
            "group": owner.pw_gid,
            "extra_groups": [],
        }


@contextmanager
def served(port: int | None = None) -> Iterator[SqlServer]:
    """A server that runs, or tests that are left out."""
    reason = missing()
    if reason and IS_REQUIRED:
        pytest.fail(f"LEDGERMQ_POSTGRESQL=1 asks for it, and yet: {reason}")
    if reason:
        pytest.skip(reason)
    # Folders of pytest's are closed to other users, and names of sockets are short.
    with tempfile.TemporaryDirectory(prefix="ledgermq-sql-") as folder:
        server = SqlServer(Path(folder), port)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _programs() -> Path | None:
    """The folder of the newest server's programs: Debian has them on no path."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0,
    )
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return None if on_path is None else Path(on_path).resolve().parent
