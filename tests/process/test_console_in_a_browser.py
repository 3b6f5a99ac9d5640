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
from ledgermq.observer.console.console import FIRST_PAGE, SITE
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group
from tests.process.running import topics_document
from tests.process.test_console import ADMIN, HOSTILE, PAGES, answers, console_node, where
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


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with console_node() as made:
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


def complaints_of(page: Page) -> list[str]:
    """What axe finds: poor contrast, what has no name, tables and headings out of order, ids that
    stand twice.
    """
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


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
        found[path] = [complaints_of(page), max(0, wide - width)]

    assert {path: poor for path, poor in found.items() if poor != [[], 0]} == {}
    assert visitor.complaints == []


def test_pages_stand_where_the_page_before_stood_and_a_strip_shows_the_one_it_is_of(
    node: Node, browser: Browser
) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    at = "document.querySelector('.side a').getBoundingClientRect().top"
    places = {visitor.open(path).evaluate(at) for path in ("/", "/events", "/groups", "/handbook")}
    assert len(places) == 1
    narrow = Visitor(browser, address_of(node), NARROW).sign_in()
    for path in ("/", "/groups/billing", "/quotas", "/handbook"):
        here = narrow.open(path).locator(".side [aria-current]").bounding_box()
        assert here is not None
        assert 0 <= here["x"] <= here["x"] + here["width"] <= NARROW, path


def test_tiles_leave_no_hole_and_numbers_stand_apart_from_words(
    node: Node, browser: Browser
) -> None:
    visitor = Visitor(browser, address_of(node), NARROW).sign_in()
    for path in ("/", "/topics/orders", "/groups/billing", "/processes"):
        page = visitor.open(path)
        hole = page.evaluate(
            """() => {
                const [all, ...tiles] = ['.facts', ...document.querySelectorAll('.fact')]
                    .map(one => (one.matches ? one : document.querySelector(one)))
                    .map(one => one.getBoundingClientRect());
                const size = one => one.width * one.height;
                return size(all) - tiles.reduce((sum, one) => sum + size(one), 0);
            }"""
        )
        lines = page.evaluate("document.querySelector('.facts').getBoundingClientRect()")
        # The lines between and around them alone: a tile is a sixth of it at least.
        assert hole < lines["width"] * lines["height"] / 20, path
    page = visitor.open("/topics/orders")
    apart = page.evaluate(
        """() => {
            const cell = document.querySelector('#table-queues td.number + td:not(.number)');
            return parseFloat(getComputedStyle(cell).paddingLeft);
        }"""
    )
    assert apart >= 20


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
    assert complaints_of(page) == []
    assert visitor.complaints == []


def test_a_table_is_sorted_and_pages_stay_current(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/topics?system=yes")
    page.get_by_role("link", name="Topic", exact=True).click()
    page.locator("#table-topics th[aria-sort=descending]").wait_for()
    names = page.locator("#table-topics tbody td:first-child").all_inner_texts()
    assert names == sorted(names, key=str.lower, reverse=True)
    page.get_by_label("Retries, dead letters").uncheck()
    page.get_by_text("%DLQ%billing").wait_for(state="hidden")
    page.locator("h1").click()
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        admin.create_topic("zz-made-meanwhile")
    page.get_by_text("zz-made-meanwhile").wait_for()

    page = visitor.open("/processes")
    page.locator("#table-processes").get_by_role("button", name="Process", exact=True).click()
    assert page.locator("#table-processes th").first.get_attribute("aria-sort") == "ascending"
    assert visitor.complaints == []


def test_from_a_topic_one_gets_to_its_messages_and_groups_and_back(
    node: Node, browser: Browser
) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/topics/orders")
    page.locator("#table-consumers").get_by_text("billing").click()
    page.get_by_role("heading", name="billing").wait_for()
    page.locator("#table-topics").get_by_role("link", name="orders", exact=True).click()
    page.get_by_role("link", name="Newest messages").click()
    page.locator("#table-messages").wait_for()
    page.get_by_role("link", name="The topic, its groups").click()
    page.get_by_text("Send a message").click()
    page.locator("#send-body").fill("from the page")
    page.get_by_role("button", name="Send", exact=True).click()
    assert "is in queue" in page.get_by_role("status").inner_text()
    page.locator("#table-messages").get_by_text("from the page").wait_for()
    page.locator("#table-messages tbody a").first.click()
    page.get_by_text("Send it again").click()
    page.get_by_label("To topic").fill("other")
    page.get_by_role("button", name="Send", exact=True).click()
    page.wait_for_url("**/messages?topic=other")

    assert "is in queue" in page.get_by_role("status").inner_text()
    assert visitor.complaints == []


def test_curves_are_drawn_and_told_in_words(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/")
    page.locator(".chart canvas").nth(3).wait_for()
    told = page.locator(".plot").first.get_attribute("aria-label")

    assert told is not None
    assert told.startswith("Messages a second, the last hour at most. stored: ")
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


@pytest.mark.skipif(not SITE.is_file(), reason="the documentation was not made: make site")
def test_the_documentation_is_searched_in_the_browser(node: Node, browser: Browser) -> None:
    visitor = Visitor(browser, address_of(node)).sign_in()
    page = visitor.open("/handbook")
    page.get_by_role("link", name="All documents").click()
    page.wait_for_url(f"{visitor.address}/documentation/{FIRST_PAGE}")
    words = page.get_by_role("textbox", name="Search")
    words.click()
    words.press_sequentially("retry_later")
    found = page.locator(".md-search-result__item a").first
    found.wait_for()
    found.click()
    page.wait_for_url("**/documentation/docs/python/**")

    assert page.locator("h1").count() == 1
    # No script, style or picture that it asks for was refused.
    assert visitor.complaints == []


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
    at_leader = Visitor(browser, f"http://127.0.0.1:{ports[int(leader.name[1:])]}").sign_in().page
    at_leader.locator("#health").get_by_text("leader").wait_for()
    leader.node.signal(signal.SIGKILL)
    leader.node.wait_end()
    at_leader.get_by_text("This node gives no answer").wait_for()
    assert not at_leader.locator("#health").is_visible()
    new = group.leader()
    if new is not follower:
        new.command("raft", "transfer", follower.name)
    page.locator("#health").get_by_text("leader").wait_for()
    visitor.open("/topics")
    page.get_by_text("orders").first.wait_for()

    assert page.locator("#table-topics").is_visible()
