"""What file systems and people leave in a store's folders: it stays there, and a node serves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.client import Producer, ProducerOptions
from ledgermq.store.store_view import StoreView
from tests.process.conftest import SOURCES, Node
from tests.process.group_nodes import COMMAND, SIZES
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

Golden = Callable[[str], Path]

FOLDERS = {
    "gs1": ("", "commitlog", "consumequeue", "consumequeue/plain0", "consumequeue/plain0/0",
            "index", "config"),
    "gd0": ("", "dledger-n0", "dledger-n0/data", "dledger-n0/index", "consumequeue", "index"),
}  # fmt: skip
STRAYS = (".nfs0000000000a1b2c300000001", ".DS_Store", "00000000000000000000~", "42")
GIVEN = ("--queue-file-size", "4000", "--hash-slots", "500", "--index-items", "400")
ACCOUNT = 65_534


def leave(store: Path, folders: tuple[str, ...]) -> list[Path]:
    """Put a folder that root alone may read, and files, into each; where they are."""
    left = []
    for folder in folders:
        (store / folder / "lost+found").mkdir(mode=0o700)
        left.append(store / folder / "lost+found")
        for name in STRAYS:
            # A number is the name of a queue there.
            if (name, folder) != ("42", "consumequeue/plain0"):
                (store / folder / name).write_bytes(b"x" * 77)
                left.append(store / folder / name)
    return left


def settings(name: str) -> dict[str, object]:
    log = {"gs1": "commitlog", "gd0": "dledger"}[name]
    return {"log": log, **SIZES, "mapped_file_size_commit_log": 1_048_576,
            "mapped_file_size_consume_queue": 4_000}  # fmt: skip


def ran(*words: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, *COMMAND, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["gs1", "gd0"])
def test_what_is_no_file_of_the_store_is_left_where_it_is(
    make_node: Callable[[], Node], golden_copy: Golden, tmp_path: Path, name: str
) -> None:
    node = make_node()
    shutil.copytree(golden_copy(name), node.root)
    with closing(StoreView(node.root)) as view:
        before = [bytes(queued.message.body) for queued in view.messages(None, None)]
    left = leave(node.root, FOLDERS[name])
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0 and shutil.which("setpriv"):
        # As the service's account, which may not look into root's lost+found.
        prefix = ("setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups")
        node.folder.parent.chmod(0o755)
        for path in (node.folder, *node.folder.rglob("*")):
            if path.name != "lost+found":
                os.chown(path, ACCOUNT, ACCOUNT)
    node.configure(store=settings(name), node={"self_id": "n0"})
    node.launch(["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)], prefix=prefix)
    node.wait_ready()
    address = f"ipc://{node.runtime}"
    with Producer(address, options=ProducerOptions(timeout_s=PATIENCE_S)) as producer:
        producer.send("fresh", b"behind them", queue_id=0).result()
    topics = json.loads(
        ran("topic", "list", "--all", "--address", address, "--json", prefix=prefix).stdout
    )
    stopped = node.stop()
    warned = [line for line in node.log.read_text().splitlines() if "left where they are" in line]

    checked = ran("store", "check", str(node.root), *GIVEN[2:], prefix=prefix)
    backed_up = ran("backup", "create", str(node.root), str(tmp_path / "backups"), *GIVEN)
    rebuilt = ran("store", "rebuild", str(node.root), *GIVEN)
    with closing(StoreView(node.root)) as view:
        after = [bytes(queued.message.body) for queued in view.messages(None, None)]

    assert stopped == 0
    assert checked.returncode == 0, checked.stdout
    assert "it is left alone" in checked.stdout
    assert backed_up.returncode == 0, backed_up.stderr
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert {*before, b"behind them"} <= set(after)
    assert "lost+found" not in {one["topic"] for one in topics["topics"]}
    # One of the writer's, one each for the queues and the index.
    assert len(warned) == 3, warned
    kept = [path for path in left if path.relative_to(node.root).parts[0] not in DERIVED]
    assert kept and all(path.exists() for path in kept)


DERIVED = ("consumequeue", "index")
"""``store rebuild`` has new ones, and the old ones as they were in ``set-aside``."""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, and unshare"
)
def test_an_index_and_a_log_on_mounts_of_their_own_serve_and_are_rebuilt(
    golden_copy: Golden, tmp_path: Path
) -> None:
    store = golden_copy("gs1")
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-m", "tests.process.mounted_store", str(store)],
        capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONPATH": f"{SOURCES}:."},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
