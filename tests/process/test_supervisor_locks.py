"""One node a store, one node a runtime directory, and RocketMQ is shut out as well."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.daemon.store_lock import FamilyLock, JavaLock
from ledgermq.model.errors import StorageError, StoreLockedError
from tests.process.conftest import Node, StartNode
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

JAVA = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
os.write(fd, b"lock")
print("held", flush=True)
sys.stdin.read()
"""
"""What ``DefaultMessageStore.start`` does, in system calls."""


def java(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", JAVA, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def holder_of(path: Path) -> int:
    """Pid of the process with a POSIX lock on byte 0; asked by a process that has none."""
    with path.open("rb+") as file:
        question = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, pid = struct.unpack("@hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, question))
    return 0 if kind == fcntl.F_UNLCK else pid


def test_a_second_node_on_the_same_store_is_refused_with_the_pid(
    start_small_node: StartNode,
) -> None:
    first = start_small_node()
    pid = first.pid("supervisor")
    second = start_small_node(store={"path_root_dir": str(first.root)}, ready=False)

    assert second.wait_end() == 2
    assert second.logged(f"the store is held by process {pid}")
    assert first.status()["state"] == "ready"


def test_a_second_node_on_the_same_runtime_directory_is_refused_with_the_pid(
    start_small_node: StartNode,
) -> None:
    first = start_small_node()
    pids = first.pids()
    second = start_small_node(
        listen={"runtime_dir": str(first.runtime)},
        supervision={"stop_timeout_ms": 100},
        ready=False,
    )

    assert second.wait_end() == 2
    assert second.logged(f"held by the node of process {pids['supervisor']}")
    assert first.pids() == pids


def test_java_is_shut_out_while_the_node_runs(start_small_node: StartNode) -> None:
    node = start_small_node()
    lock = node.root / "lock"
    content = lock.read_bytes()
    holder = holder_of(lock)
    _, error = java(lock).communicate()

    assert content == b"lock"
    assert holder == node.pid("supervisor")
    assert b"BlockingIOError" in error


def test_the_node_is_shut_out_while_java_runs(
    make_node: Callable[[], Node], start_small_node: StartNode
) -> None:
    root = make_node().root
    root.mkdir()
    broker = java(root / "lock")
    assert broker.stdout is not None
    broker.stdout.readline()
    node = start_small_node(store={"path_root_dir": str(root)}, ready=False)
    status = node.wait_end()
    broker.communicate()

    assert status == 2
    assert node.logged(f"the store is held by process {broker.pid}")
    assert not (root / "abort").exists()


def test_a_lock_is_free_after_the_node_has_stopped(start_small_node: StartNode) -> None:
    node = start_small_node()
    node.stop()

    assert holder_of(node.root / "lock") == 0


def test_a_process_cannot_lose_its_lock_by_taking_it_twice(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = JavaLock.take(path)
    with pytest.raises(StoreLockedError, match="held by this process"):
        JavaLock.take(path)
    asked = subprocess.run(
        [sys.executable, "-c", JAVA, str(path)],
        check=False, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    lock.release()

    assert b"BlockingIOError" in asked.stderr


def test_a_lock_can_be_taken_again_after_its_release(tmp_path: Path) -> None:
    JavaLock.take(tmp_path / "lock").release()
    JavaLock.take(tmp_path / "lock").release()

    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_a_lock_in_a_missing_directory_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory") as refusal:
        JavaLock.take(tmp_path / "missing" / "lock")

    assert refusal.value.errno == 2


def test_an_orphan_keeps_the_family_lock_until_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "family"
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        FamilyLock.take(path, wait_ms=0)
        orphan = os.fork()
        if orphan == 0:
            signal.pause()
        os.write(writing, struct.pack("i", orphan))
        os._exit(0)
    os.waitpid(parent, 0)
    (orphan,) = struct.unpack("i", os.read(reading, 4))
    try:
        with pytest.raises(StoreLockedError, match=f"process {parent}"):
            FamilyLock.take(path, wait_ms=50)
    finally:
        os.kill(orphan, signal.SIGKILL)
        os.close(reading)
        os.close(writing)

    FamilyLock.take(path, wait_ms=round(PATIENCE_S * 1_000)).release()


def test_children_hold_the_family_locks_of_store_and_runtime_directory(
    start_small_node: StartNode,
) -> None:
    node = start_small_node()
    folder = Path(f"/proc/{node.pid('writer')}/fd")
    held = {str(fd.readlink()) for fd in folder.iterdir()}

    assert str(node.root / "ledgermq" / "lock") in held
    assert str(node.runtime / "supervisor.lock") in held


def test_a_killed_node_can_be_started_again_at_once(
    start_small_node: StartNode, restart_small_node: Callable[[Node], None]
) -> None:
    node = start_small_node()
    node.signal(signal.SIGKILL)
    restart_small_node(node)
    node.wait_told("READY=1", count=2)

    assert node.status()["state"] == "ready"
