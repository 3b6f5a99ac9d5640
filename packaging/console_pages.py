#!/usr/bin/env python3
"""Pictures of the console for docs/operating/console.md: three nodes under load, and a browser.

    .venv/bin/python packaging/console_pages.py             # after five minutes of load
    .venv/bin/python packaging/console_pages.py --load-s 60 --to /tmp/pictures
    .venv/bin/python packaging/console_pages.py --keep      # and leave the nodes to look at

Needs chromium (packaging/install-tools.sh browser) and the extra ``browser``. All is in a folder of
its own, on loopback, and is removed at the end. The pictures have few colours, so that they stay
small.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.cli.node.local_node import LocalNode
from ledgermq.client import (
    Admin,
    Consumer,
    GroupConsumer,
    Producer,
    TransactionalProducer,
    UndecidedTransaction,
)
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.config.settings import AckMode, Settings
from ledgermq.model.errors import LedgerError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCUMENTS = Path(__file__).parents[1] / "docs" / "operating" / "console"
NODES = 3
TOKEN = "console-pages-0123456789abcdef0123"  # noqa: S105 - of nodes that live for minutes
SEED = 22
COLOURS = 128
PATIENCE_S = 180.0
WIDE, NARROW = (1_280, 860), (390, 844)

TOPICS = {"orders": 8, "payments": 8, "stock": 4, "shipments": 4, "invoices": 4, "audit": 2}
PLACES = ("Lisbon", "Tartu", "Ghent", "Graz", "Turku", "Bergen")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def nodes_in(folder: Path) -> tuple[list[LocalNode], list[int]]:
    """Three nodes that are not started, and their HTTP ports."""
    tokens = folder / "tokens"
    tokens.write_text(f"operator {TOKEN} admin\n")
    tokens.chmod(0o600)
    names = [f"n{number}" for number in range(NODES)]
    ports = free_ports(2 * NODES)
    raft, http = ports[:NODES], ports[NODES:]
    defaults = Settings()
    made = []
    for name, port in zip(names, http, strict=True):
        own = folder / name
        own.mkdir()
        members = tuple(
            f"{other}=http://127.0.0.1:{at}"
            for other, at in zip(names, http, strict=True)
            if other != name
        )
        settings = replace(
            defaults,
            node=replace(
                defaults.node, self_id=name, broker_cluster_name="shop", broker_name="shop-a",
                peers=tuple(f"{one}-127.0.0.1:{at}" for one, at in zip(names, raft, strict=True)),
            ),
            raft=replace(defaults.raft, curve=False),
            store=replace(defaults.store, mapped_file_size_commit_log=64 * 1024 * 1024),
            ack=replace(defaults.ack, mode=AckMode.MAJORITY_MEMORY),
            listen=replace(defaults.listen, http=f"127.0.0.1:{port}"),
            http=replace(defaults.http, tokens_file=tokens, members=members),
        )  # fmt: skip
        made.append(LocalNode(own, settings))
    return made, http


@contextmanager
def running(nodes: Sequence[LocalNode]) -> Iterator[None]:
    """The nodes, ready; stopped at the end."""
    with ExitStack() as stops:
        for node in nodes:
            stops.callback(node.stop)
            node.launch()
        for node in nodes:
            node.wait_ready()
        yield


def leader_of(nodes: Sequence[LocalNode]) -> int:
    """The number of the node that leads."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for number, node in enumerate(nodes):
            with suppress(LedgerError):
                if node.status()["health"]["leads"]:
                    return number
        time.sleep(0.1)
    raise SystemExit("nobody leads")


class Load:
    """A shop: producers, groups of which one lags, retries, timers and transactions."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []
        self._chance = random.Random(SEED)  # noqa: S311 - no secret

    def start(self) -> None:
        """Make topics, groups and users, and begin."""
        with Admin(self._addresses, timeout_s=PATIENCE_S) as admin:
            for topic, queues in TOPICS.items():
                admin.create_topic(topic, queues=queues)
            for group in ("billing", "warehouse", "reports", "mail"):
                admin.create_group(group)
        with connect_broker(self._addresses, name="pictures", timeout_s=PATIENCE_S) as broker:
            access = AccessAdmin(broker)
            access.set_user(
                "till", {"topicPerms": ["orders=PUB", "payments=PUB"], "secretKey": "till-secret"},
                mode="add",
            )  # fmt: skip
            access.set_user(
                "billing", {"topicPerms": ["orders=SUB"], "groupPerms": ["billing=SUB"]}, mode="add"
            )
            access.set_quota("user:till", produce_messages=5_000, produce_bytes=20_000_000)
            access.set_quota("topic:audit", consume_bytes=1_000_000)
        for task in (self._produce, self._bill, self._fail, self._report, self._ship, self._till):
            thread = threading.Thread(target=self._run, args=(task,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End all of it."""
        self._end.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _run(self, task: Callable[[], None]) -> None:
        while not self._end.is_set():
            try:
                task()
            except LedgerError:
                self._end.wait(0.5)

    def _order(self, number: int) -> bytes:
        chance = self._chance
        order = {
            "order": number, "to": chance.choice(PLACES), "pieces": chance.randint(1, 9),
            "price": {"amount": chance.randint(100, 99_999) / 100, "currency": "EUR"},
            "lines": [
                {"article": chance.randint(10_000, 99_999), "count": chance.randint(1, 4)}
                for _ in range(chance.randint(1, 3))
            ],
        }  # fmt: skip
        return json.dumps(order).encode()

    def _produce(self) -> None:
        with Producer(self._addresses) as producer:
            number = 0
            while not self._end.is_set():
                swing = 1 + 0.7 * ((time.monotonic() % 90) / 90)
                for _ in range(int(12 * swing)):
                    number += 1
                    topic = self._chance.choices(list(TOPICS), (8, 6, 4, 3, 2, 1))[0]
                    key = f"order-{number}"
                    producer.send(topic, self._order(number), keys=[key], tag="web", queue_key=key)
                if number % 40 == 0:
                    producer.send("mail-later", b"remind", delay=3_600_000 + number)
                self._end.wait(0.05)

    def _bill(self) -> None:
        self._consume("billing", "orders", "biller-1", 0.01)

    def _report(self) -> None:
        self._consume("reports", "payments", "reports-1", 0.45)

    def _ship(self) -> None:
        self._consume("warehouse", "stock", "picker-1", 0.02)

    def _consume(self, group: str, topic: str, name: str, pause_s: float) -> None:
        with GroupConsumer(self._addresses, group=group, name=name) as consumer:
            consumer.subscribe(topic)
            while not self._end.is_set():
                consumer.poll(0.5)
                consumer.commit()
                self._end.wait(pause_s)

    def _fail(self) -> None:
        with Consumer(self._addresses, topic="shipments", group="mail") as consumer:
            for number, message in enumerate(consumer):
                if self._end.is_set():
                    return
                if number % 150 == 7:
                    consumer.retry_later(message, delay_level=1, times_max=0)
                consumer.commit(message)

    def _till(self) -> None:
        def ask(_undecided: UndecidedTransaction) -> None:
            return None

        with TransactionalProducer(self._addresses, group="till", listener=ask) as producer:
            for _ in range(3):
                transaction = producer.transaction()
                transaction.send("payments", self._order(1))
            self._end.wait()


def pictures(browser: Browser, address: str, folder: Path) -> None:
    """Look at the pages, and keep what is seen."""
    folder.mkdir(parents=True, exist_ok=True)
    wide = _page(browser, address, WIDE, "light")
    for name, path in (
        ("group", "/"), ("topics", "/topics"), ("groups", "/groups"),
        ("consumers", "/groups/reports"), ("messages", "/messages?topic=orders"),
        ("dead-letters", "/dead-letters/mail"),
    ):  # fmt: skip
        _shot(wide, f"{address}{path}", folder / f"{name}.png")
    wide.goto(f"{address}/messages?topic=orders")
    one = wide.locator("#table-messages tbody a").first.get_attribute("href")
    _shot(wide, f"{address}{one}", folder / "message.png")


def pictures_of_a_dead_leader(browser: Browser, address: str, dead: str, folder: Path) -> None:
    """What the next leader shows while the last one is dead, in each look."""
    for look, size, scheme in (
        ("", WIDE, "light"), ("-dark", WIDE, "dark"), ("-narrow", NARROW, "light"),
    ):  # fmt: skip
        page = _page(browser, address, size, scheme)
        page.get_by_text(f"{dead} silent since").first.wait_for()
        # Clients have found the new leader, and its curves are of what they do.
        page.locator(".fact", has_text="Stored").get_by_text(re.compile(r"[1-9].*/s")).wait_for()
        _shot(page, f"{address}/", folder / f"leader-dead{look}.png")
        if size == NARROW:
            _shot(page, f"{address}/groups", folder / "groups-narrow.png")


def picture_of_trouble(browser: Browser, address: str, folder: Path) -> None:
    """What a member shows that is alone."""
    page = _page(browser, address, WIDE, "light")
    page.locator("#verdict details").first.wait_for()
    _shot(page, f"{address}/", folder / "alone.png")


def _page(browser: Browser, address: str, size: tuple[int, int], scheme: str) -> Page:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_S * 1_000)
    page = context.new_page()
    page.goto(f"{address}/sign-in")
    page.get_by_role("textbox", name="Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in with a token").click()
    page.wait_for_url(f"{address}/")
    return page


def _shot(page: Page, address: str, file: Path) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.screenshot(path=file)
    _make_small(file)


def _make_small(file: Path) -> None:
    """Few colours, and no more of the file than that."""
    from PIL import Image

    with Image.open(file) as image:
        small = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def main() -> None:
    """Start, load, look."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load-s", type=float, default=300, help="load before the pictures")
    parser.add_argument("--to", type=Path, default=DOCUMENTS, help="where the pictures go")
    parser.add_argument("--keep", action="store_true", help="run until Ctrl-C")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium: packaging/install-tools.sh browser")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="console-") as folder:
        nodes, ports = nodes_in(Path(folder))
        with running(nodes):
            load = Load([node.address for node in nodes])
            load.start()
            try:
                time.sleep(arguments.load_s)
                number = leader_of(nodes)
                address = f"http://127.0.0.1:{ports[number]}"
                print(f"{address}, token {TOKEN}", flush=True)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(
                        executable_path=chromium, args=["--no-sandbox"]
                    )
                    pictures(browser, address, arguments.to)
                    while arguments.keep:
                        time.sleep(1)
                    nodes[number].kill_all()
                    heir = leader_of([node for node in nodes if node.is_up])
                    left = [one for one in range(NODES) if one != number]
                    address = f"http://127.0.0.1:{ports[left[heir]]}"
                    pictures_of_a_dead_leader(browser, address, f"n{number}", arguments.to)
                    nodes[left[1 - heir]].kill_all()
                    picture_of_trouble(browser, address, arguments.to)
                    browser.close()
            except KeyboardInterrupt:
                pass
            finally:
                load.stop()


if __name__ == "__main__":
    main()
