"""What docs/operating/spark-at-100-tb.md says of buckets is what the plan computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.bucket_plan import (
    PARQUET_SHARE,
    RUNS,
    SECONDS,
    SIZE,
    SPLITS_MIB,
    MadeRepository,
    PlannedArchive,
    PlannedStream,
    document_bytes,
    listed,
)
from bench.bucket_requests import AMAZON, Requests, heads_looked_at
from ledgermq.conversion.stream.stream_restore import Wanted

ROOT = Path(__file__).parents[3]
RESULTS: dict[str, Any] = json.loads((ROOT / "bench/results/bucket_plan.json").read_text())


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """Rows of the tables below ``In a bucket``, by what stands first in them."""
    page = (ROOT / "docs/operating/spark-at-100-tb.md").read_text()
    _, _, section = page.partition("\n## In a bucket\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells}


def usd(amount: float) -> str:
    return f"{amount:,.2f}"


@pytest.mark.long
def test_the_figures_of_an_archive_are_computed(rows: dict[str, list[str]]) -> None:
    plans = [PlannedArchive.of(SIZE, split << 20) for split in SPLITS_MIB]
    runs = [plan.requests_of_runs() for plan in plans]
    audits = [plan.requests_of_audit() for plan in plans]
    manifests = [RESULTS[f"archive_{split}_mib"]["manifest"] for split in SPLITS_MIB]

    assert rows["files"] == [f"{plan.files:,}" for plan in plans]
    assert rows["MB a file"] == [f"{plan.file_size / 1e6:,.0f}" for plan in plans]
    assert rows["MB a document"] == [f"{document_bytes(plan) / 1e6:,.1f}" for plan in plans]
    assert rows["MB of manifest"] == [f"{one['manifest_bytes'] / 1e6:,.0f}" for one in manifests]
    assert rows["MiB in memory"] == [f"{one['memory_mib']:,.0f}" for one in manifests]
    assert rows["all runs: PUT, COPY, LIST"] == [f"{one.puts:,}" for one in runs]
    assert rows["all runs: GET"] == [f"{one.gets:,}" for one in runs]
    assert rows["all runs: USD"] == [usd(AMAZON.of(one)) for one in runs]
    assert rows["an audit: GET"] == [f"{one.gets:,}" for one in audits]
    assert rows["an audit: LIST"] == [f"{one.puts:,}" for one in audits]
    assert rows["an audit: USD"] == [usd(AMAZON.of(one)) for one in audits]


def test_the_figures_of_a_stream_are_computed(rows: dict[str, list[str]]) -> None:
    plans = [PlannedStream.of(SIZE, seconds) for seconds in (60, SECONDS)]
    streamed = [plan.requests_of_stream() for plan in plans]

    def of_restore(heads: list[int]) -> list[Requests]:
        return [plan.requests_of_restore(one) for plan, one in zip(plans, heads, strict=True)]

    each = [plan.pieces for plan in plans]
    by_time, last = of_restore(each), of_restore([1, 1])

    assert rows["pieces"] == [f"{count:,}" for count in each]
    assert rows["a listing: LIST"] == [f"{one.puts:,}" for one in last]
    assert rows["a listing: USD"] == [f"{AMAZON.of(Requests(puts=one.puts)):.4f}" for one in last]
    assert rows["a listing: MiB in memory"] == [
        f"{RESULTS[f'stream_{name}_begin']['memory_mib']:,.0f}"
        for name in ("whole_files", "of_a_month")
    ]
    assert rows["heads to find a point, last / index / time"] == [
        f"1 / {heads_looked_at(count)} / {count:,}" for count in each
    ]
    assert rows["all that is put: PUT, USD"] == [
        f"{one.puts:,}, {usd(AMAZON.of(one))}" for one in streamed
    ]
    assert rows["a restore by a time: GET, USD"] == [
        f"{one.gets:,}, {usd(AMAZON.of(one))}" for one in by_time
    ]


def test_what_is_kept_and_leaves_costs_what_is_said(rows: dict[str, list[str]]) -> None:
    archive = int(SIZE * PARQUET_SHARE)

    assert RUNS == 30
    assert rows["kept for a month"] == [f"{AMAZON.kept(one):,.0f}" for one in (archive, SIZE)]
    assert rows["read from outside of the region"] == [
        f"{AMAZON.taken_out(one):,.0f}" for one in (archive, SIZE)
    ]


def test_as_many_heads_are_read_as_the_plan_counts() -> None:
    """By the real search, in a repository of made-up pieces."""
    planned = PlannedStream(1_000, 3)
    last = 1_000 * (1 << 30) // 1_200 - 1
    opens = {
        name: listed(MadeRepository(planned), wanted)["opens"]
        for name, wanted in {
            "last": Wanted(), "index": Wanted(index=last), "time": Wanted(time_ms=1 << 62),
        }.items()
    }  # fmt: skip

    # With them the newest tables, and the head of the last piece.
    assert opens["last"] == 1 + 1
    assert isinstance(opens["index"], int)
    assert opens["index"] <= heads_looked_at(planned.pieces) + 1
    assert opens["time"] == planned.pieces + 1 + 1
