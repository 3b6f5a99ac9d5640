"""Program that a test starts in a mount namespace of its own: a store in parts.

Its log, index and queues are mounts, with what a file system puts there; each is found damaged, put
aside, and built again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

COMMAND = [sys.executable, "-m", "ledgermq.cli.main"]
SIZES = ("--queue-file-size", "4000", "--hash-slots", "500", "--index-items", "400")


def main(store: Path) -> None:
    """Exits with a traceback where something is not as it should be."""
    for name in ("commitlog", "index", "consumequeue"):
        _mount(store / name)
    index = sorted(path for path in (store / "index").iterdir() if path.name.isdigit())
    os.truncate(index[-1], 99)
    queue = max((store / "consumequeue" / "plain0" / "0").glob("[0-9]*"))
    os.truncate(queue, 30)
    _serve(store)
    _run("store", "check", str(store), *SIZES[2:])
    _run("store", "rebuild", str(store), *SIZES)
    _run("store", "check", str(store), *SIZES[2:])
    for name in ("commitlog", "index", "consumequeue"):
        assert (store / name).is_mount() and (store / name / "lost+found").is_dir(), name
    aside = {path.name.rpartition("-")[0] for path in (store / "ledgermq/set-aside").iterdir()}
    assert {f"index-{index[-1].name}", "plain0-0"} <= aside, aside


def _mount(folder: Path) -> None:
    kept = folder.with_name(f"{folder.name}.before")
    folder.rename(kept)
    folder.mkdir()
    words = ("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder))
    subprocess.run(["mount", *words], check=True)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    shutil.rmtree(kept)
    (folder / "lost+found").mkdir(mode=0o700)


def _serve(store: Path) -> None:
    """Start a node on it, and stop it once it is ready."""
    settings = store.with_name("node.toml")
    # What pytest makes is too long for a unix socket.
    runtime = Path(tempfile.mkdtemp(prefix="lmq-", dir=short_folder()))
    tables = {
        "node": {"self_id": "n0"},
        "store": {"path_root_dir": str(store), "log": "commitlog",
                  "mapped_file_size_commit_log": 1_048_576,
                  "mapped_file_size_consume_queue": 4_000,
                  "max_hash_slot_num": 500, "max_index_num": 400},
        "listen": {"runtime_dir": str(runtime)},
        "retention": {"file_reserved_time": 876_000, "refuse_above": "100%"},
    }  # fmt: skip
    lines = []
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    settings.write_text("\n".join(lines) + "\n")
    node = subprocess.Popen([*COMMAND, "serve", "--config", str(settings)])
    try:
        wait = ("--wait-ready", str(int(PATIENCE_S)))
        _run("status", "--config", str(settings), *wait)
    finally:
        node.terminate()
        status = node.wait(PATIENCE_S)
        shutil.rmtree(runtime)
        assert status == 0


def _run(*words: str) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
