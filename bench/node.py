"""A node for a benchmark: the installed command, its own directories, stopped at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ledgermq.ipc.cursor_page import CursorPage


class BenchNode(NamedTuple):
    """A running node."""

    directory: Path
    runtime: Path
    process: subprocess.Popen[bytes]
    page: CursorPage
    ready_after_s: float

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"ipc://{self.runtime}"

    def status(self) -> dict[str, object]:
        """What ``ledgermq status --json`` says."""
        done = subprocess.run(
            [*COMMAND, "status", "--json", "--runtime-dir", str(self.runtime)],
            capture_output=True,
            check=True,
        )
        status: dict[str, object] = json.loads(done.stdout)
        return status


COMMAND = [sys.executable, "-m", "ledgermq.cli.main"]


def configuration(
    directory: Path,
    runtime: Path,
    *,
    ack: str,
    level: str = "WARNING",
    more: str = "",
    store: str = "",
    listen: str = "",
) -> str:
    """Settings of a node as an operator would write them; ``store`` and ``listen`` are lines."""
    return (
        f'[store]\npath_root_dir = "{directory / "store"}"\n{store}'
        f'[listen]\nruntime_dir = "{runtime}"\ntrusted_network = true\n{listen}'
        f'[ack]\nmode = "{ack}"\n'
        f'[log]\nlevel = "{level}"\n'
        f"{more}"
    )


@contextmanager
def bench_node(
    base: Path,
    *,
    ack: str,
    directory: Path | None = None,
    more: str = "",
    store: str = "",
    listen: str = "",
) -> Iterator[BenchNode]:
    """A node with its store below ``base``; removed at the end unless ``directory`` was given.

    Args:
        more: tables of settings beside those that every benchmark has.
        store: lines of settings for the store.
        listen: lines of settings about where it listens.
    """
    own = directory or Path(tempfile.mkdtemp(prefix="node-", dir=base))
    runtime = Path(tempfile.mkdtemp(prefix="lmq-", dir="/tmp"))
    config = own / "ledgermq.toml"
    config.write_text(configuration(own, runtime, ack=ack, more=more, store=store, listen=listen))
    begin = time.monotonic()
    process = subprocess.Popen([*COMMAND, "serve", "--config", str(config)])
    try:
        subprocess.run(
            [*COMMAND, "status", "--runtime-dir", str(runtime), "--wait-ready", "60"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        ready = time.monotonic() - begin
        with CursorPage.attach(runtime / "cursors") as page:
            yield BenchNode(own, runtime, process, page, ready)
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(runtime, ignore_errors=True)
        if directory is None:
            shutil.rmtree(own, ignore_errors=True)
