"""``ledgermq spark audit`` on three replicas of the Java broker: clean, and with planted faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ledgermq.cli.main import main

Json = dict[str, Any]
NAMES = ["gd0", "gd1", "gd2"]
SLOTS = "--hash-slots=500"
MAGIC = (0xDAA320A7).to_bytes(4, "big")
END = 1_436_173
"""Where the group's log ends."""

LAST_BUT_FEW = 1_240_170
"""Where a large record begins, in which the tails are cut."""

CUT = END - 20_000
Plant = Callable[[Path], tuple[int, int]]


@pytest.fixture
def replicas(golden: Any, tmp_path: Path) -> list[Path]:
    """Copies of a group's three stores, each in a folder of its name."""
    found = []
    for name in NAMES:
        found.append(tmp_path / name)
        shutil.copytree(golden(name), found[-1])
    return found


def audited(capsys: pytest.CaptureFixture[str], *words: object, status: int) -> Json:
    capsys.readouterr()
    found = main(["spark", "audit", *map(str, words), SLOTS, "--json"])
    printed = capsys.readouterr()

    assert found == status, printed.out + printed.err
    document: Json = json.loads(printed.out)
    return document


def log_path(store: Path) -> Path:
    return sorted(next(store.glob("dledger-*")).glob("data/*"))[-1]


def flip_a_byte(store: Path) -> tuple[int, int]:
    path = sorted(next(store.glob("dledger-*")).glob("data/*"))[0]
    content = bytearray(path.read_bytes())
    at = content.index(MAGIC, 300_000) + 91
    content[at] ^= 1
    path.write_bytes(content)
    return at, at + 1


def zero_the_tail(store: Path) -> tuple[int, int]:
    path = log_path(store)
    content = bytearray(path.read_bytes())
    cut = CUT - int(path.name)
    content[cut:] = bytes(len(content) - cut)
    path.write_bytes(content)
    return LAST_BUT_FEW, END


def truncate_the_tail(store: Path) -> tuple[int, int]:
    path = log_path(store)
    path.write_bytes(path.read_bytes()[: CUT - int(path.name)])
    return LAST_BUT_FEW, END


def test_replicas_of_the_java_broker_are_clean(
    spark: SparkSession, golden: Any, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "report"
    found = audited(capsys, *map(golden, NAMES), "--out", out, status=0)
    page = (out / "audit.html").read_text()

    assert found["faults"] == []
    assert [len(replica["ranges"]) for replica in found["replicas"]] == [1, 1, 1]
    assert {replica["ranges"][0][2] for replica in found["replicas"]} == {"good"}
    assert [replica["records"] for replica in found["replicas"]] == [444] * 3
    assert page.count("<svg") == 3
    assert "All replicas are the same" in page
    assert pq.read_table(out / "faults.parquet").num_rows == 0


@pytest.mark.long(but=1)
@pytest.mark.parametrize("plant", [flip_a_byte, zero_the_tail, truncate_the_tail])
def test_one_fault_in_a_log_is_found_and_nothing_else(
    spark: SparkSession, replicas: list[Path], tmp_path: Path, capsys: Any, plant: Plant
) -> None:
    first, end = plant(replicas[1])
    kind = "divergent" if plant is flip_a_byte else "missing"
    out = tmp_path / "report"
    found = audited(capsys, *replicas, "--out", out, status=5)
    (fault,) = found["faults"]

    assert (fault["replica"], fault["kind"]) == ("gd1", kind)
    # What differs is told to a page of the log.
    assert fault["first"] <= first < end <= fault["end"]
    assert fault["end"] - fault["first"] <= max(end - first, 4_096)
    states = [{state for _, _, state in replica["ranges"]} for replica in found["replicas"]]
    assert states == [{"good"}, {"good", kind}, {"good"}]
    assert pq.read_table(out / "faults.parquet").to_pylist() == [fault]
    assert f"<title>{kind}: " in (out / "audit.html").read_text()


def test_swapped_units_of_a_queue_are_found_and_nothing_else(
    spark: SparkSession, replicas: list[Path], capsys: Any
) -> None:
    path = replicas[2] / "consumequeue" / "plain0" / "0" / f"{0:020d}"
    content = path.read_bytes()
    path.write_bytes(content[20:40] + content[:20] + content[40:])
    (fault,) = audited(capsys, *replicas, status=4)["faults"]

    assert (fault["replica"], fault["kind"]) == ("gd2", "derived")
    assert fault["file"] == f"consumequeue/plain0/0/{0:020d}"
    assert "at 0" in fault["what"] and "at 20" in fault["what"]


def test_two_replicas_that_differ_are_judged_by_their_crcs(
    spark: SparkSession, replicas: list[Path], capsys: Any
) -> None:
    flip_a_byte(replicas[1])
    (fault,) = audited(capsys, *replicas[:2], status=5)["faults"]

    assert (fault["replica"], fault["kind"], fault["findings"]) == ("gd1", "divergent", 1)
