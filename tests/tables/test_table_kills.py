"""A driver that dies at any step of a run leaves a table that the next run completes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.small_store import write_store
from tests.suite.patience import PATIENCE_S
from tests.suite.plugin import LONG
from tests.tables.lake import Lake, Row, places
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = pytest.mark.slow

AT_ONCE = timedelta(microseconds=1)
ROOT = Path(__file__).resolve().parents[2]
MESSAGES = (10, 16)
STEPS = 26
"""More than a run has."""
TIDY_STEPS = 60
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


def rows_or_none(lake: Lake) -> list[Row]:
    try:
        return lake.rows()
    except NoSuchTableError:
        return []


def made(
    folder: Path, steps: range, job: str, lake_in: Callable[[Path], Lake] = Lake.below
) -> tuple[list[Lake], list[str]]:
    """A lake, and a plan of ``table_dying``, for each of ``steps``.

    Args:
        lake_in: what makes a lake whose tables are below a folder.
    """
    lakes, plans = [], []
    for step in steps:
        below = folder / f"step-{step}"
        below.mkdir()
        lakes.append(lake_in(below))
        plans.append(f"{below} {lakes[-1].properties['uri']} {step} {job}")
    return lakes, plans


def died_at(store: Path, plans: list[str]) -> list[str]:
    """What has become of each plan of ``table_dying``."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tables.table_dying", str(store)],
        input="\n".join(plans),
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60 * PATIENCE_S,
    )
    return done.stdout.split()


@pytest.mark.parametrize("begun", [pytest.param(False, marks=pytest.mark.long), True])
def test_nothing_is_lost_or_doubled(lake: Lake, tmp_path: Path, begun: bool) -> None:
    earlier, later = stores(tmp_path)
    lakes, plans = made(tmp_path, range(1, STEPS, STEP), "archive")
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


@pytest.mark.long
def test_tidy_leaves_all_rows_and_what_it_has_not_done_to_the_next_one(
    lake: Lake, tmp_path: Path
) -> None:
    earlier, later = stores(tmp_path)
    lakes, plans = made(tmp_path, range(2, TIDY_STEPS, 2), "tidy")
    for one in lakes:
        one.archived(earlier)
        one.archived(later)
    found = died_at(later, plans)
    grown(tmp_path / "store", MESSAGES[1] + 4)
    for one in lakes:
        seen = places(one.rows())
        one.tidied(keep=AT_ONCE)
        one.archived(tmp_path / "store")

        assert seen == expected(MESSAGES[1])
        assert places(one.rows()) == expected(MESSAGES[1] + 4)
        # One of all that was there, and those of the last run.
        tidied = [task.file for task in one.table().scan("queueOffset < 3").plan_files()]
        assert len(tidied) == 1
    assert {"died", "ended"} == set(found)
