"""The console in a real browser: each page, by keyboard, narrow, dark, under attack, leaderless."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledgermq.client import Admin, Consumer, Producer
from ledgermq.observer.console.console import FIRST_PAGE, SITE
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group
from tests.process.running import topics_document
from tests.process.test_console import ADMIN, HOSTILE, PAGES, answers, console_node, where
from tests.suite.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("LEDGERMQ_BROWSER") != "1", reason="LEDGERMQ_BROWSER is not 1"
    ),
]

PATIENCE_MS = 30_000
WIDE, NARROW = 1_280, 390
TOPICS = 10_000
RESULTS = Path(__file__).parents[2] / "build" / "console-results"
"""Pictures, and how long answers took, to be looked at behind the tests."""


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


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_what_a_row_can_be_done_with_is_in_sight(node: Node, browser: Browser, width: int) -> None:
    visitor = Visitor(browser, address_of(node), width).sign_in()
    for path in ("/dead-letters/billing", "/timers"):
        page = visitor.open(path)
        button = page.locator(".row-act button").first.bounding_box()
        card = page.locator(".scroll:has(.row-act)").first.bounding_box()
        assert button is not None
        assert card is not None
        assert card["x"] <= button["x"], path
        assert button["x"] + button["width"] <= card["x"] + card["width"], path


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


def group_with_consoles(make_node: Callable[[], Node]) -> tuple[Group, dict[str, str]]:
    """Three nodes that know each other's consoles, and where each one's is, by name."""
    ports = [free_port() for _ in range(3)]
    places = {f"n{number}": f"http://127.0.0.1:{port}" for number, port in enumerate(ports)}

    def with_http(member: Member) -> None:
        tokens = member.node.folder / "tokens"
        tokens.write_text(f"operator {ADMIN} admin\n")
        tokens.chmod(0o600)
        members = [f"{name}={at}" for name, at in places.items() if name != member.name]
        own = places[member.name].removeprefix("http://")
        text = member.node.config.read_text().replace("[listen]", f'[listen]\nhttp = "{own}"')
        member.node.config.write_text(
            f'{text}\n[http]\ntokens_file = "{tokens}"\nmembers = {json.dumps(members)}\n'
        )

    return make_group(make_node, ack="majority-memory", prepare=with_http), places


def test_a_page_outlives_the_leader(make_node: Callable[[], Node], browser: Browser) -> None:
    """Its member says who leads then, and a follower's page of a topic comes back by itself."""
    group, places = group_with_consoles(make_node)
    leader = group.leader()
    with Producer([member.address for member in group.members]) as producer:
        producer.send("orders", b"one", queue_id=0).result(PATIENCE_S)
    follower = group.others(leader)[0]
    visitor = Visitor(browser, places[follower.name])
    wait_until(lambda: answers(follower.node), "the observer to answer")
    visitor.sign_in()
    page = visitor.open("/topics")
    page.get_by_text(f"{leader.name} leads, and answers this page.").wait_for()
    link = page.get_by_role("link", name=f"Open the console of {leader.name}")
    assert link.get_attribute("href") == places[leader.name]
    visitor.open("/")
    at_leader = Visitor(browser, places[leader.name]).sign_in().page
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


class Asker:
    """Who asks the console by a mouse: what is pressed is counted, what is written, too.

    Attributes:
        answers: of each question how many presses and how many seconds it took.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.answers: dict[str, tuple[int, float]] = {}
        self._presses = 0

    @contextmanager
    def question(self, text: str) -> Iterator[None]:
        self._presses, began = 0, time.monotonic()
        yield
        self.answers[text] = self._presses, round(time.monotonic() - began, 1)

    def press(self, place: Locator) -> None:
        self._presses += 1
        place.click()

    def side(self, name: str) -> None:
        self.press(self.page.locator(".side").get_by_role("link", name=name, exact=True))


def orders_of_which_one_is_bad(group: Group) -> None:
    """Forty, and one that billing has given up; the rest of them it has not read."""
    addresses = [member.address for member in group.members]
    with Producer(addresses) as producer:
        for number in range(40):
            key = f"order-{number}"
            producer.send("orders", key.encode(), keys=[key], queue_id=number % 4)
        producer.send("orders", b"bad", queue_id=0).result(PATIENCE_S)
    with Consumer(addresses, topic="orders", group="billing", queues=[0]) as consumer:
        bad = wait_until(lambda: [one for one in consumer.poll(1) if one.body == b"bad"], "it")
        consumer.retry_later(bad[0], delay_level=1, times_max=0)
        consumer.commit(bad[0])


def complaints_of_all(looks: dict[str, Visitor]) -> dict[tuple[str, str], list[str]]:
    """What axe finds on the pages that answer, by each visitor; a picture of each is kept."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    poor = {}
    for name, visitor in looks.items():
        for path in ("/", "/groups", "/topics", "/messages?topic=orders", "/dead-letters/billing"):
            page = visitor.open(path)
            shown = path.partition("?")[0].strip("/").replace("/", "-") or "group"
            page.screenshot(path=RESULTS / f"leader-dead-{shown}-{name}.png")
            poor[name, path] = complaints_of(page)
    return {place: found for place, found in poor.items() if found}


def test_the_five_questions_are_answered_while_a_leader_is_dead(
    make_node: Callable[[], Node], browser: Browser
) -> None:
    """Each within a few presses from where the one before has ended, and legible everywhere."""
    group, places = group_with_consoles(make_node)
    orders_of_which_one_is_bad(group)
    leader = group.leader()
    heir = group.others(leader)[0]
    for member in group.members:
        wait_until(lambda at=member.node: answers(at), "the observer to answer")
    looks = {
        "light": Visitor(browser, places[heir.name]),
        "dark": Visitor(browser, places[heir.name], color_scheme="dark"),
        "narrow": Visitor(browser, places[heir.name], NARROW),
    }
    for visitor in looks.values():
        visitor.sign_in()
    leader.node.signal(signal.SIGKILL)
    leader.node.wait_end()
    asker = Asker(looks["light"].page)
    page = asker.page
    if group.leader() is not heir:
        group.leader().command("raft", "transfer", heir.name)
    page.locator("#health").get_by_text("leader").wait_for()

    with asker.question("is all well?"):
        page.get_by_text(f"{leader.name} silent since").first.wait_for()
        page.get_by_text("2 of 3 in step, none may fail").wait_for()
    with asker.question("who is behind?"):
        asker.side("Consumer groups")
        row = page.locator("#table-groups tbody tr").filter(has_text="billing")
        row.get_by_text("nobody consumes").or_(row.get_by_text("measuring")).first.wait_for()
    with asker.question("what comes in?"):
        asker.side("Topics")
        page.locator("#table-topics tbody tr").filter(has_text="orders").first.wait_for()
    with asker.question("where is my message?"):
        asker.press(page.locator("#table-topics").get_by_role("link", name="orders", exact=True))
        asker.press(page.get_by_role("link", name="Newest messages"))
        found = page.locator("#table-messages tbody tr").filter(has_text="order-39")
        asker.press(found.get_by_role("link").first)
        page.get_by_text("billing").first.wait_for()
    with asker.question("give it what it has given up"):
        asker.side("Dead letters")
        asker.press(page.get_by_role("link", name="billing", exact=True))
        asker.press(page.get_by_role("button", name="Replay 0"))
        page.get_by_text("1 replayed.").wait_for()
    pressed = {question: presses for question, (presses, _) in asker.answers.items()}
    poor = complaints_of_all(looks)
    (RESULTS / "five-questions.json").write_text(
        json.dumps({**asker.answers, "load": os.getloadavg()[0]}, indent=1)
    )

    assert list(pressed.values()) == [0, 1, 1, 3, 3]
    assert poor == {}
