"""The pages of RocketMQ's dashboard 1.0.0 in a real browser, at three nodes: none has a complaint.

Those of 2.1.0 are made by node at its build, and are left out of it here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.dashboard_walk import READER
from tests.compat.dashboards import OLD, dashboard
from tests.compat.remoting_group import BROKER_NAME, make_remoting_group
from tests.compat.rocketmq import oracle_program
from tests.compat.test_dashboards import ASKED_FOR, had, lived
from tests.process.conftest import Node
from tests.process.group_nodes import TOPIC
from tests.suite.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(
        ASKED_FOR not in os.environ or os.environ.get("LEDGERMQ_BROWSER") != "1",
        reason=f"{ASKED_FOR} and LEDGERMQ_BROWSER are not 1",
    ),
]

PAGES = {
    "": "Date",
    "cluster": "V4_9_4",
    "topic": TOPIC,
    "consumer": READER,
    "producer": "PRODUCER_GROUP",
    "message": "TOPIC",
    "messageTrace": "TOPIC",
    "ops": "NameServerAddressList",
}
"""Pages by their routes, and a word that is on each, in any case of letters and without blanks."""

TOPIC_BUTTONS = ("statsView", "routerView", "consumerView", "openUpdateDialog")
CONSUMER_BUTTONS = ("client", "detail", "updateConfigDialog")


class Complaints:
    """What went wrong in a window: refused calls, errors of scripts."""

    def __init__(self, page: Page) -> None:
        self.said: list[str] = []
        page.on("response", self._look_at)
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def _look_at(self, response: Response) -> None:
        if response.status >= 400:
            self.said.append(f"{response.url}: {response.status}")
        told: Any = None
        # Pages and pictures are no JSON.
        with suppress(ValueError, UnicodeDecodeError):
            told = response.json() if ".query" in response.url or ".do" in response.url else None
        if isinstance(told, dict) and told.get("status", 0) != 0:
            self.said.append(f"{response.url}: {told.get('errMsg')}")


def wait_for_word(page: Page, word: str) -> None:
    """Until a page shows a word."""
    page.wait_for_function(
        "word => document.body.innerText.replace(/[\\s_]/g, '').toLowerCase()"
        ".includes(word.replace(/[\\s_]/g, '').toLowerCase())",
        arg=word,
        timeout=PATIENCE_S * 1_000,
    )


def press(page: Page, function: str, name: str) -> str:
    """Press a button in the row of ``name``; what the dialog says that opens."""
    row = page.locator("tr", has_text=name).filter(has=page.locator(f"[ng-click^='{function}(']"))
    row.first.locator(f"[ng-click^='{function}(']").first.click()
    dialog = page.locator(".ngdialog-content").last
    dialog.wait_for(timeout=PATIENCE_S * 1_000)
    said = dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached", timeout=PATIENCE_S * 1_000)
    return said


def test_no_page_of_1_0_0_has_a_complaint(make_node: Callable[[], Node], tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    jar = had(OLD)
    oracle_program()
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("there is no chromium: packaging/install-tools.sh browser")
    group, name_servers = make_remoting_group(
        make_node, tables={"access": {"admin_over_clients": True}}
    )
    group.leader()
    with (
        lived(name_servers, tmp_path) as life,
        dashboard(jar, OLD, name_servers, tmp_path / "dashboard") as board,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 1_400, "height": 1_000})
        complaints = Complaints(page)
        for route, word in PAGES.items():
            page.goto(f"{board.address}/#/{route}")
            wait_for_word(page, word)
        page.goto(f"{board.address}/#/topic")
        wait_for_word(page, TOPIC)
        topic = {button: press(page, button, TOPIC) for button in TOPIC_BUTTONS}
        page.goto(f"{board.address}/#/consumer")
        wait_for_word(page, READER)
        reader = {button: press(page, button, READER) for button in CONSUMER_BUTTONS}
        page.screenshot(path=tmp_path / "consumer.png")
        assert page.locator(".ui-notification.error").count() == 0

    assert group.stop() == [0, 0, 0]
    assert complaints.said == []
    assert READER in topic["consumerView"]
    assert BROKER_NAME in topic["routerView"]
    assert life.consumer in reader["client"]
    assert TOPIC in reader["detail"]
