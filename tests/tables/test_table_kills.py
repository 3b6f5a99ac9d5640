"""A driver that dies at any step of a run leaves a table that the next run completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from tests.small_store import write_store
from tests.suite.patience import PATIENCE_S
from tests.suite.plugin import LONG
from tests.tables.lake import Lake, Row, places

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = (10, 16)
STEPS = 26
"""More than a run has."""
STEP = 1 if os.environ.get(LONG) == "1" else 4
"""How many of them are left out, but for one, in a test that is to be short."""


def stores(folder: Path) -> list[Path]:
    """The small store, earlier and later."""
    made = []
    for messages in MESSAGES:
        root = folder / f"store-{messages}"
        root.mkdir()
        write_store(root, messages=messages)
        made.append(root)
    return made


def expected(messages: int) -> list[tuple[str, int, int]]:
    return sorted(("orders", number % 2, number // 2) for number in range(messages))


def rows_or_none(lake: Lake) -> list[Row]:
    try:
        return lake.rows()
    except NoSuchTableError:
        return []


def died_at(store: Path, plans: list[str]) -> list[str]:
    """What has become of each plan of ``table_dying``."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tables.table_dying", str(store)],
        input="\n".join(plans),
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60 * PATIENCE_S,
    )
    return done.stdout.split()


@pytest.mark.parametrize("begun", [pytest.param(False, marks=pytest.mark.long), True])
def test_nothing_is_lost_or_doubled(lake: Lake, tmp_path: Path, begun: bool) -> None:
    earlier, later = stores(tmp_path)
    plans, lakes = [], []
    for step in range(1, STEPS, STEP):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        lakes.append(Lake.below(folder))
        plans.append(f"{folder} {step}")
    if begun:
        for one in lakes:
            one.archived(earlier)
    found = died_at(later, plans)
    before = expected(MESSAGES[0]) if begun else []
    for one, outcome in zip(lakes, found, strict=True):
        seen = places(rows_or_none(one))
        one.archived(later)

        assert seen in (before, expected(MESSAGES[1]))
        assert outcome == "died" or seen == expected(MESSAGES[1])
        assert places(one.rows()) == expected(MESSAGES[1])
    assert {"died", "ended"} == set(found)
