"""A store on a file system that is read-only is refused in words, and nothing is called a bug."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgermq.model.exit_status import EXIT_OK, EXIT_STORAGE
from tests.process.client_node import start_client_node
from tests.process.conftest import Node
from tests.process.node_start import SERVE, run_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root"),
]

COMMANDS = (
    ("store", "check", "{root}"),
    ("store", "rebuild", "{root}"),
    ("store", "upgrade", "{root}"),
    ("store", "accept-loss", "{root}", "--yes"),
    ("backup", "create", "--config", "{config}", "{root}-backup"),
)


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Iterator[Node]:
    """One that has run, and whose store became read-only since."""
    node = make_node()
    node.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(node.root)], check=True)
    try:
        start_client_node(node)
        assert node.stop() == EXIT_OK
        remount(node.root, "ro")
        yield node
    finally:
        node.end()
        subprocess.run(["umount", str(node.root)], check=True)


def remount(root: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(root)], check=True)


def test_a_start_says_that_the_store_is_read_only(node: Node) -> None:
    node.launch([*SERVE, str(node.config)])
    status = node.wait_end()
    told = node.log.read_text().splitlines()[-1]

    assert status == EXIT_STORAGE
    assert "Read-only file system" in told and str(node.root) in told
    assert not node.logged("Traceback") and not node.logged("bug of ledgermq")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_no_command_calls_a_read_only_store_a_bug(words: tuple[str, ...], node: Node) -> None:
    asked = [word.format(root=node.root, config=node.config) for word in words]
    done = run_command(*asked)

    assert "Traceback" not in done.stderr and "bug of ledgermq" not in done.stderr, done.stderr
    if done.returncode == EXIT_STORAGE:
        assert "Read-only file system" in done.stderr
