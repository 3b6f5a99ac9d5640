"""The dashboard: made of its list, of series that there are, in expressions that can be read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.observer.metrics.series import CATALOG, SeriesKind
from tests.observability_programs import load

dashboard: Any = load("dashboard")


def board() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(dashboard.BOARD.read_text())
    return made


def panels() -> list[dict[str, Any]]:
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


def asked() -> Iterator[tuple[str, str]]:
    """Legend and expression of each curve."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["legendFormat"], target["expr"]


def test_what_is_checked_in_is_what_the_program_writes() -> None:
    assert dashboard.BOARD.read_text() == dashboard.text(), (
        "run packaging/observability/dashboard.py"
    )


def test_every_series_is_of_the_catalogue_and_every_label_one_of_its() -> None:
    for legend, expr in asked():
        names = re.findall(r"\b(?:ledgermq|rocketmq)_[a-z_]+", expr)
        assert names, expr
        labels = {"instance", "job"}
        for name in names:
            series = CATALOG[name.removesuffix("_bucket")]
            assert name.endswith("_bucket") == (series.kind is SeriesKind.HISTOGRAM), name
            labels |= set(series.labels)
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels, (legend, expr)


def test_counters_are_shown_as_rates() -> None:
    for _, expr in asked():
        for name in re.findall(r"\bledgermq_[a-z_]+_total\b", expr):
            assert re.search(rf"(?:rate|increase)\({name}\b", expr), expr


def test_panels_have_ids_of_their_own_and_do_not_lie_upon_one_another() -> None:
    everything = board()["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells

    assert len({panel["id"] for panel in everything}) == len(everything)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian's prometheus has promtool")
def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"asked:{number}", "expr": expr.replace("$__rate_interval", "1m")}
        for number, (_, expr) in enumerate(asked())
    ]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    ran = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert f"SUCCESS: {len(rules)} rules found" in ran.stdout
