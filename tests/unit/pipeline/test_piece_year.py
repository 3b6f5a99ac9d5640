"""What docs/operating/cold-storage.md says of a year's costs is what the plan reckons."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bucket_requests import AMAZON, GB, Prices
from bench.piece_year import PlannedYear, told

ROOT = Path(__file__).parents[3]
LOGS_GB = (100, 1_000, 10_000)


def rows_told() -> dict[str, list[str]]:
    """Rows of the table below ``What a year costs``, by what stands first in them."""
    page = (ROOT / "docs/operating/cold-storage.md").read_text()
    _, _, section = page.partition("\n## What a year costs\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells}


def test_the_figures_of_a_year_are_reckoned() -> None:
    years = [told(PlannedYear(log * GB), AMAZON) for log in LOGS_GB]
    rows = rows_told()

    assert rows.pop("GB of the log in the year") == [f"{log:,}" for log in LOGS_GB]
    assert rows.pop("---") == ["---"] * len(LOGS_GB)
    assert rows == {name: [year[name] for year in years] for name in years[0]}


def test_prices_are_those_that_are_given() -> None:
    year = PlannedYear(1_000 * GB, members=1)
    prices = Prices(puts=1.0, gets=0.0, month=1.0, out=0.0)

    assert float(told(year, prices)["sealing: USD"]) == pytest.approx(
        year.sealing().puts / 1_000, abs=0.01
    )
    assert year.kept_later(prices) == pytest.approx(12 * year.stored / GB)
    assert year.kept_first(prices) == pytest.approx(6 * year.stored / GB)
    assert told(year, prices)["members: USD"] == "0.00"
    # Three times the members ask three times as much, and seal no more.
    three = year._replace(members=3)
    assert three.reading().gets == 3 * year.reading().gets
    assert three.sealing() == year.sealing()
