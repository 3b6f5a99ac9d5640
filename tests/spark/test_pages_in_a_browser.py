"""The reports of ``audit`` and ``stats`` in a real browser: what is there is to be seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from ledgermq.cli.main import main

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("LEDGERMQ_BROWSER") != "1", reason="LEDGERMQ_BROWSER is not 1"
    ),
]

WIDTH = 1_280
MAGIC = (0xDAA320A7).to_bytes(4, "big")

SEEN_AT_ITS_MIDDLE = """marks => marks.map(mark => {
    mark.scrollIntoView({block: 'center'});
    const box = mark.getBoundingClientRect();
    return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === mark;
})"""
"""Of each mark: whether the browser shows it there, and nothing over it."""

OVERLAPPING = """texts => {
    const boxes = texts.map(text => text.getBoundingClientRect());
    return boxes.flatMap((one, at) => boxes.slice(at + 1).filter(other =>
        one.left < other.right && other.left < one.right &&
        one.top < other.bottom && other.top < one.bottom)).length;
}"""
"""How many pairs of texts are written over one another."""

LINES = """cells => cells.map(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getClientRects().length;
})"""
"""On how many lines each text stands."""


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of a browser without a window; it must have nothing to complain of."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no chromium: packaging/install-tools.sh browser")
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": WIDTH, "height": 900})
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("requestfailed", lambda request: complaints.append(request.url))
        yield opened
        browser.close()
    assert complaints == []


def opened(page: Page, path: Path) -> None:
    """Show ``path``, which asks for nothing else, and is no wider than the window."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())

    assert asked == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH


def test_a_fault_of_one_replica_is_seen_where_it_is(
    spark: SparkSession, golden: Any, tmp_path: Path, page: Page
) -> None:
    stores = [tmp_path / name for name in ("gd0", "gd1", "gd2")]
    for store in stores:
        shutil.copytree(golden(store.name), store)
    log = sorted(next(stores[1].glob("dledger-*")).glob("data/*"))[0]
    content = bytearray(log.read_bytes())
    at = content.index(MAGIC, 300_000) + 91
    content[at] ^= 1
    log.write_bytes(content)
    out = tmp_path / "report"
    status = main(["spark", "audit", *map(str, stores), "--hash-slots=500", "--out", str(out)])
    opened(page, out / "audit.html")
    red = page.locator('svg rect[fill="#c8322b"]')
    picture, mark = page.locator("svg").nth(1).bounding_box(), red.bounding_box()
    end = int(
        page.locator("p").first.inner_text().split(" to ")[1].split(", in")[0].replace(",", "")
    )

    assert status == 5
    assert page.locator("svg").count() == 3
    assert red.evaluate_all(SEEN_AT_ITS_MIDDLE) == [True]
    assert picture is not None
    assert mark is not None
    assert mark["width"] >= 2
    assert (mark["x"] - picture["x"]) / picture["width"] == pytest.approx(at / end, abs=0.01)
    assert page.get_by_text("1 fault.").is_visible()
    assert page.locator("table tr").count() == 2


def test_every_topic_is_seen_in_the_plots_of_a_moment(
    spark: SparkSession, golden: Any, tmp_path: Path, page: Page
) -> None:
    """All of this store was stored within a minute: one point of each line."""
    out = tmp_path / "report"
    status = main(["spark", "stats", str(golden("gd0")), "--bucket", "3600", "--out", str(out)])
    opened(page, out / "stats.html")
    rates = page.locator('svg[aria-label="messages a second"]')
    lines_of_times = page.locator("td.u").evaluate_all(LINES)

    assert status == 0
    assert rates.locator("circle").count() == rates.locator("circle title").count() > 4
    assert any(rates.locator("circle").evaluate_all(SEEN_AT_ITS_MIDDLE))
    for plot in page.locator("svg").all():
        assert plot.locator("rect, circle, polyline").count() > 0
        assert plot.locator("text").evaluate_all(OVERLAPPING) == 0
    assert all(page.locator("svg rect").evaluate_all(SEEN_AT_ITS_MIDDLE))
    assert lines_of_times == [1] * 18
