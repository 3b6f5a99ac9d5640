"""Retention of a real node waits for an archive, until nobody waits for it any more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer
from ledgermq.client.admin.broker_admins import ArchiveAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.archive.archive_job import archive
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.source_options import parse_options
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S
from tests.unit.pipeline.archives import TasksHere

pytestmark = pytest.mark.slow

FILE_SIZE = 65_536
LIMIT = {"bytes_max": "200KiB", "keep_for_members": "0B", "archive_wait_below": "100%"}


def files(node: Node) -> list[str]:
    return sorted(path.name for path in node.root.glob("dledger-*/data/0*"))


def fill(address: str, count: int) -> None:
    with Producer([address]) as producer:
        futures = [producer.send("orders", os.urandom(4_000), queue_id=n % 4) for n in range(count)]
        for future in futures:
            future.result(PATIENCE_S)


@pytest.mark.long
def test_old_files_stay_until_they_are_archived(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = make_node()
    start_client_node(node, file_size=FILE_SIZE, retention=LIMIT)
    address = f"ipc://{node.runtime}"
    with connect_broker([address], name="test", timeout_s=PATIENCE_S) as broker:
        admin = ArchiveAdmin(broker)
        admin.commit("nightly", 0)
        fill(address, 160)
        wait_until(lambda: node.logged("archive nightly has the log up to 0"), "a warning")
        held = files(node)
        with pytest.raises(ConfigError, match="what the log has not"):
            admin.commit("nightly", 2**40)

        def is_archived() -> bool:
            options = parse_options({"nodes": address}, streaming=False)
            found = archive(
                TasksHere(), options, FolderStore(tmp_path / "archive"), split_bytes=1 << 20
            )
            assert found.position is not None
            admin.commit("nightly", found.position)
            return files(node)[0] > held[0]

        wait_until(is_archived, "files that are archived to go")
        (row,) = admin.archives()
        with pytest.raises(ConfigError, match="was further already"):
            admin.commit("nightly", 1)
        fill(address, 160)
    wait_until(lambda: marks_of(node)["nightly"]["position"] == row.position, "the mark's file")
    listed: dict[str, Any] = command(capsys, "archive", "list", "--address", address)
    wait_until(lambda: counted(node) == (1, row.position), "the counters")
    capsys.readouterr()
    assert main(["status", "--runtime-dir", str(node.runtime)]) == 0
    told = capsys.readouterr().out
    assert main(["top", "--once", "--address", address]) == 0
    shown = capsys.readouterr().out
    before = files(node)[0]
    command(capsys, "archive", "remove", "nightly", "--address", address)
    wait_until(lambda: files(node)[0] > before, "files to go that nobody waits for")

    assert held[0] == f"{0:020d}"
    assert [one["archive"] for one in listed["archives"]] == ["nightly"]
    assert listed["archives"][0]["behind"] > 0
    assert "archives    1, of which the last one lacks" in told
    assert "archives lack" in shown
    wait_until(lambda: counted(node) == (0, 0), "the counters")


def counted(node: Node) -> tuple[int, int]:
    counters = node.status()["counters"]["broker"]
    return counters["archives"], counters["archived_position"]


def marks_of(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((node.root / "ledgermq" / "archives.json").read_text())
    return dict(found["archives"])


def command(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()

    assert main([*words, "--json"]) == 0

    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found
