"""Stores that the Java broker wrote are sources of a table, with what that broker has answered."""

from __future__ import annotations

from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from ledgermq.pipeline.archive.archive_job import archive_into
from ledgermq.pipeline.source_options import parse_options
from tests.tables.lake import Lake, by_place, seen_by_duck
from tests.tables.test_iceberg_table import source_rows
from tests.unit.pipeline.archives import TasksHere

pytestmark = pytest.mark.slow


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["gs1", "gu0", "g6"])
def test_a_table_has_what_the_broker_answered(
    tmp_path: Path, golden: Any, golden_json: Any, name: str
) -> None:
    lake = Lake.below(tmp_path)
    options = parse_options(
        {"path": str(golden(name)), "subscribePattern": "(?s).*"}, streaming=False
    )
    found = archive_into(TasksHere(), options, lake.opened(), split_bytes=1 << 20, level=-5)
    again = archive_into(TasksHere(), options, lake.opened(), split_bytes=1 << 20, level=-5)
    rows = lake.rows()
    known = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in rows}
    answers = golden_json(name)["messages"]
    differing = [
        answer
        for answer in answers
        if not is_same(
            known[answer["readTopic"], answer["readQueue"], answer["queueOffset"]], answer
        )
    ]

    assert differing == []
    assert found.rows == len(rows) == len(known) >= len(answers) >= 200
    assert again.run is None
    assert rows == by_place(source_rows(golden(name)))
    assert seen_by_duck(lake.table()) == rows


def is_same(row: dict[str, Any], answer: dict[str, Any]) -> bool:
    """Whether a row is the message of an answer; two properties are the answer's alone."""
    told = {
        key: text
        for key, text in answer["properties"].items()
        if key not in ("MIN_OFFSET", "MAX_OFFSET")
    }
    properties = dict(row["properties"])
    return (
        md5(row["body"], usedforsecurity=False).hexdigest() == answer["bodyMd5"]
        and row["physicalOffset"] == answer["physicalOffset"]
        and row["flag"] == answer["flag"]
        and row["crcOk"] is True
        and {key: properties.get(key) for key in told} == told
    )
