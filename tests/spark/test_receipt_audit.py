"""``ledgermq spark audit --key``: logs, pieces and archives against what a real node has signed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import SparkSession

from ledgermq.cli.main import main
from ledgermq.client.reading.queries import Queries
from ledgermq.formats.records.message import BODY_CRC_AT, CRC_MASK, HEAD_SIZE, WORD
from ledgermq.sessions.keys.receipt_key import make_signer
from tests.process.conftest import Node, nodes_made
from tests.process.group_nodes import TOPIC
from tests.process.test_receipts import QUEUES, receipt_of, send, start

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Json = dict[str, Any]
COUNT = 200
FORGED = 117
PLACE = {"topic": TOPIC, "queue_id": FORGED % QUEUES, "first": FORGED // QUEUES}
WHOLE = {"messages": COUNT, "lacking": 0}


class Copies:
    """What is there of one log: as it was signed, and with one body changed and all sums right."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.key = start(node, log="commitlog").as_text()
        sent = send(node.address, COUNT)
        with Queries(node.address) as queries:
            for place in list(sent)[-QUEUES:]:
                receipt_of(queries, *place)
        node.stop()
        self.folder = folder
        self.stores = {"true": folder / "true", "forged": folder / "forged"}
        for root in self.stores.values():
            shutil.copytree(node.root, root)
        forge(self.stores["forged"])
        for name, root in self.stores.items():
            assert main(["piece", "seal", str(root), "--to", self.pieces(name)]) == 0
            assert main(["spark", "archive", str(root), "--to", self.archive(name)]) == 0

    def pieces(self, name: str) -> str:
        return str(self.folder / f"pieces-{name}")

    def archive(self, name: str) -> str:
        return str(self.folder / f"archive-{name}")


def forge(store: Path) -> None:
    """Write another body, and its CRC."""
    (log,) = (store / "commitlog").iterdir()
    content = bytearray(log.read_bytes())
    forged = b"BODY %d" % FORGED
    at = content.index(b"body %d" % FORGED) - HEAD_SIZE
    content[at + HEAD_SIZE : at + HEAD_SIZE + len(forged)] = forged
    WORD.pack_into(content, at + BODY_CRC_AT, crc32(forged) & CRC_MASK)
    log.write_bytes(content)


@pytest.fixture(scope="module")
def copies(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """Nothing in them is changed by a test."""
    with nodes_made() as make:
        return Copies(make(), tmp_path_factory.mktemp("copies"))


def audited(capsys: pytest.CaptureFixture[str], *words: object, status: int) -> Json:
    """What an audit says of receipts."""
    capsys.readouterr()
    found = main(["spark", "audit", *map(str, words), "--hash-slots=500", "--json"])
    printed = capsys.readouterr()

    assert found == status, printed.out + printed.err
    document: Json = json.loads(printed.out)["receipts"]
    return document


def test_one_changed_body_is_named_in_each_copy_by_one_that_has_what_was_signed(
    copies: Copies, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    true, forged = copies.stores["true"], copies.stores["forged"]
    kept, key = tmp_path / "kept", ["--key", copies.key]
    pieces, archives = (
        [word for name in copies.stores for word in (option, place(name))]
        for option, place in (("--pieces", copies.pieces), ("--archive", copies.archive))
    )
    capsys.readouterr()
    assert main(["receipt", "checkpoint", "--from", copies.pieces("true")]) == 0
    kept.write_text(capsys.readouterr().out)
    # All sums are right: what has no key sees two logs that differ, and pieces and archives that
    # are whole.
    assert main(["piece", "verify", copies.pieces("forged")]) == 0
    assert main(["spark", "archive-verify", copies.archive("forged")]) == 0

    clean = [true, "--pieces", copies.pieces("true"), "--archive", copies.archive("true")]
    found = audited(capsys, *clean, *key, "--since", kept, status=0)
    assert found["faults"] == []
    assert [{**copy, "name": None} for copy in found["copies"]] == [{**WHOLE, "name": None}] * 3

    out = tmp_path / "report"
    words = [true, forged, *pieces, *archives, *key, "--since", kept, "--out", out]
    found = audited(capsys, *words, status=5)
    assert {fault["copy"] for fault in found["faults"]} == {
        "forged",
        copies.pieces("forged"),
        copies.archive("forged"),
    }
    for fault in found["faults"]:
        assert {name: fault[name] for name in PLACE} == PLACE, fault
        assert (fault["end"], fault["kind"]) == (PLACE["first"] + 1, "changed")
        assert "not what was signed, which true has" in fault["what"]
    whole = {copy["name"]: copy["messages"] for copy in found["copies"]}
    assert whole["true"] == whole[copies.archive("true")] == COUNT
    assert whole[copies.archive("forged")] == COUNT - 1
    page = (out / "audit.html").read_text()
    assert page.count("which true has") == 3


def test_a_copy_alone_is_known_to_be_changed_and_pieces_need_no_log(
    copies: Copies, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key, archive = ["--key", copies.key], ["--archive", copies.archive("forged")]
    alone = audited(capsys, copies.stores["forged"], *archive, *key, status=5)
    (fault,) = alone["faults"]
    assert (fault["copy"], fault["topic"], fault["queue_id"]) == (
        "forged",
        TOPIC,
        PLACE["queue_id"],
    )
    assert fault["first"] <= PLACE["first"] < fault["end"]
    # Nothing has what was signed of that stretch: the archive's rows of it are not compared.
    stretch = fault["end"] - fault["first"]
    assert [copy["messages"] for copy in alone["copies"]] == [COUNT - stretch] * 2

    pieces = ["--pieces", copies.pieces("true")]
    (fault,) = audited(capsys, *pieces, *archive, *key, status=5)["faults"]
    assert (fault["copy"], fault["first"]) == (copies.archive("forged"), PLACE["first"])
    assert fault["what"].startswith("body, bodyCrc of the row")


def test_checkpoints_of_another_key_and_damaged_parts_are_named(
    copies: Copies, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    true = copies.stores["true"]
    other = make_signer(tmp_path / "other.key", "orders-a").as_text()
    (fault,) = audited(capsys, true, "--key", other, status=5)["faults"]
    assert (fault["kind"], fault["copy"]) == ("history", "true")
    assert "signed by none of the keys" in fault["what"]

    damaged = tmp_path / "damaged"
    shutil.copytree(copies.pieces("true"), damaged)
    (piece,) = (damaged / "pieces").iterdir()
    content = bytearray(piece.read_bytes())
    content[len(content) // 4] ^= 1
    piece.write_bytes(content)
    found = audited(capsys, true, "--pieces", damaged, "--key", copies.key, status=5)
    assert {fault["copy"] for fault in found["faults"]} == {str(damaged)}
    assert {fault["kind"] for fault in found["faults"]} == {"history", "damaged"}
    assert all("part of a piece is not what was sealed" in one["what"] for one in found["faults"])
    assert [copy["messages"] for copy in found["copies"]] == [COUNT, 0]

    bare = tmp_path / "bare"
    shutil.copytree(true, bare, ignore=shutil.ignore_patterns("consumequeue"))
    assert main(["spark", "audit", str(bare), "--key", copies.key, "--hash-slots=500"]) == 1
    assert "store has no queues" in capsys.readouterr().err

    found = main(["spark", "audit", "--pieces", copies.pieces("true")])
    assert found == 1
    assert "need --key" in capsys.readouterr().err
