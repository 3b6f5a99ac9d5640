"""The console in a real browser: each page, by keyboard, narrow, dark, under attack, leaderless."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledgermq.client import Admin, Producer
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group
from tests.process.running import topics_document
from tests.process.test_console import ADMIN, HOSTILE, PAGES, answers, fill, where
from tests.suite.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("LEDGERMQ_BROWSER") != "1", reason="LEDGERMQ_BROWSER is not 1"
    ),
]

PATIENCE_MS = 30_000
WIDE, NARROW = 1_280, 390
TOPICS = 10_000

CONTRAST = """() => {
    const channel = value => {
        const part = value / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    };
    const parse = text => {
        const found = text.match(/[\\d.]+/g).map(Number);
        return {rgb: found.slice(0, 3), alpha: found.length > 3 ? found[3] : 1};
    };
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const ground = element => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.alpha === 1) return colour.rgb;
        }
        return [255, 255, 255];
    };
    const poor = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
        const [one, two] = [light(parse(getComputedStyle(element).color).rgb),
                            light(ground(element))].sort((a, b) => b - a);
        const ratio = (one + 0.05) / (two + 0.05);
        if (ratio < 4.5) poor.push([element.outerHTML.slice(0, 120), ratio.toFixed(2)]);
    }
    return poor;
}"""
"""Texts with less contrast than WCAG's AA asks of text of this size, and how much they have."""

UNNAMED = """() => {
    const isNamed = element => element.labels?.length || element.getAttribute('aria-label')
        || element.getAttribute('aria-labelledby') || element.textContent.trim();
    const poor = [...document.querySelectorAll('input:not([type=hidden]), select, button, a')]
        .filter(element => element.checkVisibility() && !isNamed(element));
    const tables = [...document.querySelectorAll('table[data-table]')].filter(table =>
        !table.caption || [...table.tHead.rows[0].cells].some(cell => cell.scope !== 'col'));
    const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
    const twice = ids.filter((id, at) => ids.indexOf(id) !== at);
    const dangling = [...document.querySelectorAll('[aria-labelledby], [aria-describedby]')]
        .flatMap(element => (element.getAttribute('aria-labelledby')
            || element.getAttribute('aria-describedby')).split(' '))
        .filter(id => !document.getElementById(id));
    const levels = [...document.querySelectorAll('main h1, main h2')].map(one => one.tagName);
    const order = levels[0] === 'H1' ? [] : ['the first heading of the content is no h1'];
    return [...poor, ...tables].map(element => element.outerHTML.slice(0, 160))
        .concat(twice, dangling, order);
}"""
"""What a screen reader could not name: fields and links, tables, ids that stand twice or lead
nowhere.
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        tokens = made.folder / "tokens"
        tokens.write_text(f"operator {ADMIN} admin\n")
        tokens.chmod(0o600)
        start_client_node(
            made,
            access={"enabled": True},
            listen={"http": f"127.0.0.1:{free_port()}"},
            http={"tokens_file": str(tokens)},
        )
        fill(f"ipc://{made.runtime}")
        wait_until(lambda: answers(made), "the observer to answer")
        yield made


@pytest.fixture
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no chromium: packaging/install-tools.sh browser")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


class Visitor:
    """A window of a browser that has signed in.

    Attributes:
        complaints: what the browser said: refused scripts and styles, errors, other addresses.
    """

    def __init__(self, browser: Browser, address: str, width: int = WIDE, **more: Any) -> None:
        self.address = address
        self.complaints: list[str] = []
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        context.set_default_timeout(PATIENCE_MS)
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self._look_at(request.url))

    def sign_in(self) -> Visitor:
        self.page.goto(f"{self.address}/sign-in")
        self.page.get_by_role("textbox", name="Token").fill(ADMIN)
        self.page.get_by_role("button", name="Sign in with a token").click()
        self.page.wait_for_url(f"{self.address}/")
        return self

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.address}{path}")
        return self.page

    def _look_at(self, url: str) -> None:
        if not url.startswith(self.address):
            self.complaints.append(url)


def address_of(node: Node) -> str:
    host, port = where(node)
    return f"http://{host}:{port}"


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light")])
def test_each_page_can_be_seen_read_and_named(
    node: Node, browser: Browser, width: int, scheme: str
) -> None:
    visitor = Visitor(browser, address_of(node), width, color_scheme=scheme).sign_in()
    found = {}
    for path in PAGES:
        page = visitor.open(path)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        wide = page.evaluate("document.documentElement.scrollWidth")
        found[path] = [page.evaluate(CONTRAST), page.evaluate(UNNAMED), max(0, wide - width)]

    assert {path: poor for path, poor in found.items() if poor != [[], [], 0]} == {}
    assert visitor.complaints == []


def test_what_a_stranger_has_written_does_nothing(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/messages?topic=orders&by=key&at=order-1")
    page.locator("#table-messages tbody a").first.click()
    page.wait_for_selector("#body-title")
    shown = page.locator(".body-text").inner_text()
    name = page.locator("#table-properties").get_by_text(HOSTILE, exact=True).count()
    visitor.open("/topics?name=" + "%22%3E%3Cscript%3Ealert(1)%3C/script%3E")

    assert shown == HOSTILE
    assert name == 2
    assert page.locator("img[src='x']").count() == 0
    assert visitor.complaints == []


def test_a_topic_is_made_and_deleted_by_keyboard_alone(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    go_to(page, "Create a topic")
    page.keyboard.press("Enter")
    go_to(page, "Name")
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/by-keyboard*")
    assert page.get_by_role("status").inner_text() == "Topic by-keyboard was created."
    go_to(page, "Delete")
    page.keyboard.press("Enter")
    go_to(page, "Type by-keyboard to confirm it")
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics*")

    assert page.get_by_role("status").inner_text() == "Topic by-keyboard was deleted."
    assert visitor.complaints == []


def test_changes_are_made_by_a_press_and_told(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    told = []

    def tell(page: Page) -> None:
        told.append(page.get_by_role("status").inner_text())

    page = visitor.open("/dead-letters/billing")
    page.get_by_role("button", name="Replay 0").click()
    page.get_by_text("1 replayed.").wait_for()
    tell(page)
    page = visitor.open("/timers")
    page.locator(".row-act button").first.click()
    page.get_by_role("status").wait_for()
    tell(page)
    page = visitor.open("/groups/billing")
    page.get_by_text("Go on elsewhere").click()
    page.get_by_label("To", exact=True).select_option("last")
    page.get_by_role("button", name="Move the group").first.click()
    page.get_by_role("status").wait_for()
    tell(page)
    page = visitor.open("/users")
    page.get_by_text("Add a user").click()
    page.locator("#add-user").fill("clerk")
    page.locator("#add-topicPerms").fill("orders=SUB")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("status").wait_for()
    tell(page)
    page = visitor.open("/quotas")
    page.get_by_text("Set a quota").click()
    page.locator("#set-owner").fill("user:clerk")
    page.locator("#set-produce_messages").fill("10")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_role("status").wait_for()
    tell(page)

    assert told[0] == "1 replayed."
    assert told[1].endswith("is not delivered.")
    assert told[2].startswith("Group billing goes on elsewhere in ")
    assert told[3:] == ["User clerk was added.", "The quota of user:clerk was set."]
    assert page.locator("#table-quotas").get_by_text("user:clerk").is_visible()
    assert visitor.complaints == []


def go_to(page: Page, name: str) -> None:
    """Press Tab until what has that name has the focus, which is to be seen there."""
    named = (
        "(document.activeElement.labels?.[0] ?? document.activeElement).textContent"
        ".replace(/\\s+/g, ' ').trim()"
    )
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate(named) == name:
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert page.evaluate(outline) != "none", f"nobody sees that {name} has the focus"
            return
    pytest.fail(f"nothing of the name {name} is reached by Tab")


def test_the_theme_is_switched_and_kept(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node), color_scheme="light").sign_in()
    page = visitor.page
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Switch to the dark theme").click()
    dark = page.evaluate(ground)
    page.reload()

    assert before != dark == page.evaluate(ground)
    assert page.get_by_role("button", name="Switch to the light theme").is_visible()
    assert page.evaluate(CONTRAST) == []
    assert visitor.complaints == []


def test_a_table_is_sorted_and_pages_stay_current(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/topics?system=yes")
    page.get_by_role("button", name="Topic", exact=True).click()
    page.get_by_role("button", name="Topic", exact=True).click()
    names = page.locator("#table-topics tbody td:first-child").all_inner_texts()
    sort = page.locator("#table-topics th").first.get_attribute("aria-sort")
    assert (names, sort) == (sorted(names, key=str.lower, reverse=True), "descending")
    page.locator("h1").click()
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        admin.create_topic("zz-made-meanwhile")
    page.get_by_text("zz-made-meanwhile").wait_for()

    assert page.locator("#table-topics tbody td:first-child").first.inner_text().startswith("zz-")
    assert visitor.complaints == []


def test_curves_are_drawn_and_told_in_words(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/")
    page.locator(".chart canvas").nth(3).wait_for()
    told = page.locator(".plot").first.get_attribute("aria-label")

    assert told is not None
    assert told.startswith("Messages a second, the last hour. stored: ")
    assert page.evaluate("[...document.querySelectorAll('canvas')].every(one => one.width > 100)")
    assert visitor.complaints == []


def test_without_a_script_all_of_it_works(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node), java_script_enabled=False).sign_in()
    page = visitor.open("/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("scriptless")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url("**/topics/scriptless")

    assert page.get_by_role("status").inner_text() == "Topic scriptless was created."


def test_ten_thousand_topics_are_found_and_exported(
    make_node: Callable[[], Node], browser: Browser, tmp_path: Path
) -> None:
    node = make_node()
    tokens = node.folder / "tokens"
    tokens.write_text(f"operator {ADMIN} admin\n")
    tokens.chmod(0o600)
    node.configure(
        store={"mapped_file_size_consume_queue": 20_000},
        listen={"http": f"127.0.0.1:{free_port()}"},
        http={"tokens_file": str(tokens)},
    )
    (node.root / "config").mkdir(parents=True)
    names = [f"topic-{number:05}" for number in range(TOPICS)]
    (node.root / "config" / "topics.json").write_text(topics_document(*names, queues=1))
    node.serve()
    wait_until(lambda: answers(node), "the observer to answer")
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/topics")
    page.locator("#table-topics").wait_for()
    assert page.locator("#table-topics tbody tr").count() == 100
    page.get_by_role("link", name="Next page").click()
    page.get_by_text("topic-00100").wait_for()
    page.get_by_label("Name contains").fill("9999")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("topic-09999").wait_for()
    assert page.locator("#table-topics tbody tr").count() == 1
    page = visitor.open("/topics")
    with page.expect_download() as download:
        page.get_by_role("link", name="Topics as CSV").click()
    download.value.save_as(tmp_path / "topics.csv")

    assert (tmp_path / "topics.csv").read_text().count("topic-") == TOPICS
    assert visitor.complaints == []


def test_a_page_outlives_the_leader(make_node: Callable[[], Node], browser: Browser) -> None:
    """Its member says who leads then, and a follower's page of a topic comes back by itself."""
    ports = [free_port() for _ in range(3)]

    def with_http(member: Member) -> None:
        number = int(member.name[1:])
        tokens = member.node.folder / "tokens"
        tokens.write_text(f"operator {ADMIN} admin\n")
        tokens.chmod(0o600)
        members = [f"n{n}=http://127.0.0.1:{port}" for n, port in enumerate(ports) if n != number]
        text = member.node.config.read_text().replace(
            "[listen]", f'[listen]\nhttp = "127.0.0.1:{ports[number]}"'
        )
        member.node.config.write_text(
            f'{text}\n[http]\ntokens_file = "{tokens}"\nmembers = {json.dumps(members)}\n'
        )

    group: Group = make_group(make_node, ack="majority-memory", prepare=with_http)
    leader = group.leader()
    with Producer([member.address for member in group.members]) as producer:
        producer.send("orders", b"one", queue_id=0).result(PATIENCE_S)
    follower = group.others(leader)[0]
    visitor = Visitor(browser, f"http://127.0.0.1:{ports[int(follower.name[1:])]}")
    wait_until(lambda: answers(follower.node), "the observer to answer")
    visitor.sign_in()
    page = visitor.open("/topics")
    page.get_by_text(f"{leader.name} leads, and answers this page.").wait_for()
    link = page.get_by_role("link", name=f"Open the console of {leader.name}")
    assert link.get_attribute("href") == f"http://127.0.0.1:{ports[int(leader.name[1:])]}"
    visitor.open("/")
    leader.node.signal(signal.SIGKILL)
    leader.node.wait_end()
    new = group.leader()
    if new is not follower:
        new.command("raft", "transfer", follower.name)
    page.locator("#health").get_by_text("leader").wait_for()
    visitor.open("/topics")
    page.get_by_text("orders").first.wait_for()

    assert page.locator("#table-topics").is_visible()
