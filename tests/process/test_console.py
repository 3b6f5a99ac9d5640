"""The console without a browser: its pages, who may see and change what, and what attackers try."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from ledgermq.client import (
    Admin,
    Consumer,
    DeadLetters,
    GroupConsumer,
    Producer,
    TopicQueue,
    TransactionalProducer,
)
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.observer.console.console import FIRST_PAGE, SITE
from ledgermq.observer.console.visits import ATTEMPTS
from tests.certificates import make_certificate
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.group_nodes import free_port
from tests.process.http_client import connect, listens, read_all
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ADMIN, LOOK, USER = (f"{kind}-0123456789abcdef0123456789abcdef" for kind in ("adm", "loo", "usr"))
SECRET = "till-and-its-secret"
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
LINK = "javascript:alert(1)"

PAGES = (
    "/", "/processes", "/disk", "/events", "/topics", "/topics/orders", "/topics?system=yes",
    "/groups", "/groups?groups-sort=group", "/groups/billing", "/messages",
    "/messages?topic=orders&by=last", "/dead-letters", "/dead-letters/billing", "/timers",
    "/transactions", "/users", "/quotas", "/handbook", "/handbook?find=disk",
    "/handbook/what-to-do",
)  # fmt: skip


@contextmanager
def console_node() -> Iterator[Node]:
    """A node that checks users, with a hostile message and a dead letter."""
    with nodes_made() as make:
        made = make()
        tokens = made.folder / "tokens"
        tokens.write_text(f"operator {ADMIN} admin\nboard {LOOK}\nshop {USER} user:till\n")
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


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with console_node() as made:
        yield made


def fill(address: str) -> None:
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_user(
            "till",
            {"topicPerms": ["orders=PUB|SUB"], "groupPerms": ["billing=SUB"], "secretKey": SECRET},
            mode="add",
        )
    with Producer(address) as producer:
        properties = {HOSTILE: HOSTILE, "link": LINK}
        producer.send(
            "orders", HOSTILE.encode(), keys=["order-1"], tag="t", properties=properties, queue_id=0
        ).result(PATIENCE_S)
        producer.send("other", b"of somebody else", queue_id=0).result(PATIENCE_S)
        producer.send("orders", b"later", delay=3_600_000).result(PATIENCE_S)
    with Admin(address, timeout_s=PATIENCE_S) as admin:
        admin.create_group("billing")
        wait_until(lambda: admin.topic("orders").messages, "dispatch")
    with Consumer(address, topic="orders", group="billing") as consumer:
        message = next(iter(consumer))
        consumer.retry_later(message, delay_level=1, times_max=0)
        consumer.commit(message)
    with DeadLetters(address, group="billing") as letters:
        wait_until(lambda: letters.queues() and letters.queues()[0].end, "the dead letter")


def where(node: Node) -> tuple[str, int]:
    text = node.config.read_text()
    port = next(line for line in text.splitlines() if line.startswith("http = "))
    return "127.0.0.1", int(port.rpartition(":")[2].strip('"'))


def answers(node: Node) -> bool:
    try:
        return ConsoleClient(where(node)).get("/sign-in").status == 200
    except OSError:
        return False


@pytest.fixture
def admin(node: Node) -> ConsoleClient:
    return signed_in(node, token=ADMIN)


def signed_in(node: Node, **fields: str) -> ConsoleClient:
    client = ConsoleClient(where(node))
    assert client.sign_in(**fields).status == 303
    return client


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_there_for_an_admin_and_bounds_what_it_may(
    admin: ConsoleClient, path: str
) -> None:
    page = admin.get(path)

    assert page.status == 200, page.text
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "same-origin"
    assert page.headers["cache-control"] == "no-store"
    assert '<html lang="en"' in page.text and page.text.count("<h1>") == 1
    assert " style=" not in page.text and "<script>" not in page.text


@pytest.mark.parametrize(
    "path", [*PAGES, "/curves.json", "/groups/billing/lag.json", "/topics/orders/rate.json"]
)
def test_nobody_sees_a_page_without_having_signed_in(node: Node, path: str) -> None:
    page = ConsoleClient(where(node)).get(path)

    assert page.status == 401 if path.endswith(".json") else page.status == 303
    if page.status == 303:
        assert page.headers["location"].startswith("/sign-in")


def test_a_visit_is_kept_from_scripts_and_other_sites(node: Node) -> None:
    client = signed_in(node, token=ADMIN)
    (cookie,) = client.set_cookies

    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ADMIN not in cookie


def test_who_signs_out_is_out(admin: ConsoleClient) -> None:
    key, kept = admin.change_key(), dict(admin.cookies)
    refused = admin.post("/sign-out", {"change_key": "another"})
    assert refused.status == 403
    assert admin.cookies == kept
    assert admin.get("/").status == 200, "a form of another place signs nobody out"
    admin.post("/sign-out", {"change_key": key})
    admin.cookies = kept

    assert admin.get("/").status == 303


def test_a_user_signs_in_by_name_and_secret_and_sees_what_is_theirs(node: Node) -> None:
    client = signed_in(node, user="till", secret=SECRET)
    message = client.get("/messages?topic=orders&by=last&queue=0")
    other = client.get("/messages?topic=other&by=last&queue=0")

    assert message.status == 200
    assert "order-1" in message.text
    assert other.status == 403
    assert "of somebody else" not in other.text
    assert client.get("/topics/other").status == 403
    assert client.get("/users").status == 403
    assert client.get("/quotas").status == 403
    assert "table-events" not in client.get("/events").text, "the journal is for operators"


@pytest.mark.parametrize(
    "fields",
    [
        {"token": "x" * 40},
        {"token": ""},
        {"user": "till", "secret": "wrong"},
        {"user": "till", "secret": ""},
        {"user": "nobody", "secret": SECRET},
        {"user": HOSTILE, "secret": HOSTILE},
    ],
)
def test_who_is_nobody_does_not_get_in(node: Node, fields: dict[str, str]) -> None:
    client = ConsoleClient(where(node))
    refused = client.sign_in(**fields)

    assert refused.status in (403, 429)
    assert client.cookies == {}
    assert "<script>alert" not in refused.text


def test_a_token_that_only_looks_sees_no_body_and_has_no_form(node: Node) -> None:
    client = signed_in(node, token=LOOK)
    topics = client.get("/topics")

    assert "/topics/orders" in topics.text
    assert 'name="act"' not in topics.text
    assert client.get("/messages?topic=orders&by=last&queue=0").status == 403
    assert client.get("/users").status == 403
    key = client.change_key()
    fields = {"topic": "x", "read_queues": "1", "write_queues": "1", "perm": "6"}
    done = client.post("/topics", {"change_key": key, "act": "create", **fields})
    assert done.status == 303
    assert "notice bad" in client.get("/topics").text


def test_a_change_needs_the_visits_own_key(admin: ConsoleClient, node: Node) -> None:
    other = signed_in(node, token=ADMIN).change_key()
    form = {"act": "create", "topic": "forged", "read_queues": "1", "write_queues": "1",
            "perm": "6"}  # fmt: skip
    without = admin.post("/topics", form)
    foreign = admin.post("/topics", {**form, "change_key": other})
    own = admin.change_key()
    from_elsewhere = admin.post("/topics", {**form, "change_key": own}, sec_fetch_site="cross-site")
    of_origin = admin.post("/topics", {**form, "change_key": own}, origin="https://evil.example")
    as_text = admin.post("/topics", {**form, "change_key": own}, content_type="text/plain")

    refused = [without, foreign, from_elsewhere, of_origin, as_text]
    assert [one.status for one in refused] == [403, 403, 403, 403, 400]
    assert "forged" not in admin.get("/topics").text


def test_a_bearer_may_look_and_not_change(node: Node) -> None:
    client = ConsoleClient(where(node))
    page = client.get("/topics", authorization=f"Bearer {ADMIN}")

    assert page.status == 200
    assert 'name="act"' not in page.text
    assert client.cookies == {}
    assert client.post(
        "/topics", {"act": "create", "topic": "x"}, authorization=f"Bearer {ADMIN}"
    ).status == 403  # fmt: skip


def test_a_topic_is_made_altered_and_deleted(admin: ConsoleClient) -> None:
    fields = {"read_queues": "2", "write_queues": "2", "perm": "6",
              "deduplication_window_ms": "0"}  # fmt: skip
    made = admin.act("/topics", "create", topic="made-here", **fields)
    altered = admin.act("/topics/made-here", "alter", **{**fields, "write_queues": "3",
                                                         "read_queues": "3"})  # fmt: skip
    kept = admin.act("/topics/made-here", "delete", typed="something else")
    deleted = admin.act("/topics/made-here", "delete", typed="made-here")

    assert "Topic made-here was created." in made.text
    assert "3 read, 3 write" in altered.text
    assert "nothing was done" in kept.text.lower()
    assert "Topic made-here was deleted." in deleted.text
    assert admin.get("/topics/made-here").status == 404


def test_a_group_is_made_moved_and_deleted(admin: ConsoleClient) -> None:
    assert "was created" in admin.act("/groups", "create", group="movers").text
    moved = admin.act("/groups/billing", "reset", topic="orders", to="first", value="")
    cloned = admin.act("/groups/movers", "clone", source="billing")
    altered = admin.act("/groups/movers", "alter", retryMaxTimes="3", consumeEnable="yes")
    deleted = admin.act("/groups/movers", "delete", typed="movers", offsets="yes")

    assert "goes on elsewhere" in moved.text
    assert "goes on elsewhere" in cloned.text
    assert "was altered" in altered.text, altered.text[altered.text.index("notice") :][:300]
    assert "was deleted" in deleted.text


def test_users_and_quotas_are_set_and_removed(admin: ConsoleClient) -> None:
    added = admin.act(
        "/users", "add", user="clerk", topicPerms="orders=SUB, other=SUB", defaultTopicPerm="DENY",
        defaultGroupPerm="DENY", groupPerms="", secretKey="clerk-secret",
    )  # fmt: skip
    users = json.loads(admin.get("/users?export=json&table=users").text)
    quota = admin.act("/quotas", "set", owner="user:clerk", produce_bytes="1000")
    removed = admin.act("/quotas", "remove", owner="user:clerk")
    gone = admin.act("/users", "remove", user="clerk", typed="clerk")

    assert "User clerk was added." in added.text
    assert "clerk-secret" not in added.text + json.dumps(users)
    assert next(row for row in users if row["user"] == "clerk")["topics"] == [
        "orders=SUB", "other=SUB",
    ]  # fmt: skip
    assert "user:clerk" in quota.text and "notice ok" in quota.text
    assert "notice ok" in removed.text
    assert "User clerk was removed." in gone.text


def test_a_dead_letter_is_replayed_and_a_timer_cancelled(admin: ConsoleClient) -> None:
    page = admin.get("/dead-letters/billing").text
    assert 'name="offsets" value="0"' in page and 'aria-label="Replay 0"' in page
    replayed = admin.act("/dead-letters/billing", "replay", offsets="0")
    again = admin.act("/dead-letters/billing", "replay", offsets="0")
    timers = json.loads(admin.get("/timers?export=json&table=timers").text)
    cancelled = admin.act("/timers", "cancel", unique_id=timers[0]["unique_id"])

    assert "1 replayed." in replayed.text
    assert "1 had been replayed already" in again.text
    assert "is not delivered" in cancelled.text
    assert "notice bad" in admin.act("/timers", "cancel", unique_id="none").text


def rows_of(client: ConsoleClient, page: str, key: str) -> dict[str, dict[str, object]]:
    """Rows of the table of that name, by what stands under ``key``."""
    separator = "&" if "?" in page else "?"
    table = page.partition("?")[0].strip("/")
    rows = json.loads(client.get(f"{page}{separator}export=json&table={table}").text)
    return {row[key]: row for row in rows}


def test_lists_say_who_is_behind_and_what_comes_in(node: Node, admin: ConsoleClient) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as producer:
        stored = [producer.send("counted", b"x" * 100, queue_id=0) for _ in range(5)]
        last = [one.result(PATIENCE_S) for one in stored][-1]
    with GroupConsumer(address, group="counter", name="c-1") as consumer:
        consumer.subscribe("counted")
        wait_until(lambda: consumer.poll(0.5), "a message")
        consumer.commit({TopicQueue("counted", 0): 1})
        row = wait_until(lambda: counted_up_to(admin, 4), "the lag")
        # Nobody has looked at its page: the observer has kept it by itself.
        wait_until(lambda: counted_up_to(admin, 4)["course"], "a sample")

    assert (row["members"], row["topics"]) == (1, ["counted"])
    assert row["age_ms"] is not None and row["state"] in ("consumes", "measuring", "stands still")
    topic = rows_of(admin, "/topics", "topic")["counted"]
    assert (topic["messages"], topic["groups"], topic["lag"]) == (5, 1, 4)
    assert topic["last"] == last.store_timestamp
    size = topic["size"]
    assert isinstance(size, int) and 500 < size < 5_000
    lag = '<td class="number" data-value="4">4</td>'
    assert lag in admin.get("/topics/counted").text
    assert lag in admin.get("/groups/counter").text


def counted_up_to(admin: ConsoleClient, lag: int) -> dict[str, object]:
    row = rows_of(admin, "/groups", "group").get("counter", {})
    return row if row.get("lag") == lag else {}


def test_topics_of_groups_and_of_the_system_are_behind_a_switch(admin: ConsoleClient) -> None:
    users, all_ = (rows_of(admin, page, "topic") for page in ("/topics", "/topics?system=yes"))

    assert "orders" in users and not any(name.startswith("%") for name in users)
    assert {"%DLQ%billing", "SCHEDULE_TOPIC_XXXX", *users} <= set(all_)


def test_a_list_is_sorted_as_asked_and_by_nothing_else(admin: ConsoleClient) -> None:
    up = list(rows_of(admin, "/topics?topics-sort=topic", "topic"))
    down = list(rows_of(admin, "/topics?topics-sort=-topic", "topic"))

    assert up == sorted(up, key=str.lower) == down[::-1]
    for wrong in ("course", "-", "nothing", HOSTILE):
        assert admin.get(f"/topics?topics-sort={quote(wrong)}").status == 400
    assert admin.get("/topics?topics-page=-1").status == 400


def messages(client: ConsoleClient, query: str) -> list[dict[str, object]]:
    rows = json.loads(client.get(f"/messages?{query}&export=json&table=messages").text)
    assert isinstance(rows, list)
    return rows


def test_the_newest_of_all_queues_are_seen_at_once_and_searched_for_a_text(
    node: Node, admin: ConsoleClient
) -> None:
    with Producer(f"ipc://{node.runtime}") as producer:
        for number in range(80):
            body = f"Number {number} of {'many' if number % 8 else 'few'}".encode()
            producer.send("spread", body, queue_id=number % 4).result(PATIENCE_S)
    wait_until(lambda: messages(admin, "topic=spread"), "dispatch")
    wait_until(lambda: "Number 79" in str(messages(admin, "topic=spread")[0]), "the last message")
    newest = [row["preview"] for row in messages(admin, "topic=spread")]
    few = messages(admin, "topic=spread&by=text&at=OF+FEW")
    last = messages(admin, "topic=spread&by=last&queue=1")

    assert newest == [
        f"Number {number} of {'many' if number % 8 else 'few'}" for number in range(79, 47, -1)
    ]
    assert [row["preview"] for row in few] == [f"Number {n} of few" for n in range(72, -1, -8)]
    assert {row["queue"] for row in last} == {1}
    assert messages(admin, "topic=spread&by=text&at=of+nobody") == []
    assert (
        "newest 80 messages: all of them."
        in admin.get("/messages?topic=spread&by=text&at=few").text
    )
    assert admin.get("/messages?topic=spread&by=text").status == 400


def test_a_search_is_of_the_queue_that_is_named(node: Node, admin: ConsoleClient) -> None:
    with Producer(f"ipc://{node.runtime}") as producer:
        sent = [
            producer.send("searched", b"part %d" % number, queue_id=number % 4, keys=["same"])
            for number in range(8)
        ]
        since = min(one.result(PATIENCE_S).store_timestamp for one in sent)
    searches = "by=text&at=part", "by=key&at=same", f"by=time&at={since}"
    for search in searches:
        query = f"topic=searched&{search}"
        wait_until(lambda query=query: len(messages(admin, query)) == 8, "all of them")
        found = {str(row["preview"]) for row in messages(admin, f"{query}&queue=2")}

        assert found == {"part 2", "part 6"}, search
        assert admin.get(f"/messages?{query}&queue=99").status == 404


def test_users_send_where_they_may_and_nowhere_else(node: Node, admin: ConsoleClient) -> None:
    for number, client in enumerate(
        (signed_in(node, token=USER), signed_in(node, user="till", secret=SECRET))
    ):
        sent = client.act("/topics/orders", "send", body="theirs", keys=f"user-{number}")
        (one,) = wait_until(
            lambda number=number: messages(admin, f"topic=orders&by=key&at=user-{number}"),
            "the message",
        )
        again = client.act(f"/messages/one?id={one['offsetMsgId']}", "again", topic="other")

        assert "is in queue" in sent.text
        assert "notice bad" in again.text
        assert messages(admin, f"topic=other&by=key&at=user-{number}") == []
    with connect_broker(f"ipc://{node.runtime}", name="test", timeout_s=PATIENCE_S) as broker:
        reader = {"topicPerms": ["orders=SUB"], "secretKey": SECRET}
        AccessAdmin(broker).set_user("reader", reader, mode="add")
    reads = signed_in(node, user="reader", secret=SECRET)
    assert "notice bad" in reads.act("/topics/orders", "send", body="x", keys="of-a-reader").text
    assert messages(admin, "topic=orders&by=key&at=of-a-reader") == []


def test_operators_send_a_message_and_send_it_again(node: Node, admin: ConsoleClient) -> None:
    sent = admin.act("/topics/orders", "send", body="<b>sent</b>", keys="k-1 k-2", tag="t")
    (first,) = wait_until(lambda: messages(admin, "topic=orders&by=key&at=k-2"), "the message")
    one = f"/messages/one?id={first['offsetMsgId']}"
    again = admin.act(one, "again", topic="other")
    (second,) = wait_until(lambda: messages(admin, "topic=other&by=key&at=k-1"), "the copy")
    nowhere = admin.act(one, "again", topic="no-such-topic")

    assert "is in queue" in sent.text and "is in queue" in again.text
    assert (second["preview"], second["tags"]) == ("<b>sent</b>", "t")
    assert "notice bad" in nowhere.text
    assert admin.get("/topics/no-such-topic").status == 404
    assert node.logged("act=send on=orders")


def test_who_only_looks_sends_nothing_and_nobody_to_the_brokers_own(
    node: Node, admin: ConsoleClient
) -> None:
    before = len(messages(admin, "topic=orders"))
    look = signed_in(node, token=LOOK)
    form = {"change_key": look.change_key(), "act": "send", "body": "x"}
    refused = look.get(look.post("/topics/orders", form).headers["location"]).text
    assert "changes nothing" in refused
    assert "notice bad" in admin.act("/topics/SCHEDULE_TOPIC_XXXX", "send", body="x").text

    assert len(messages(admin, "topic=orders")) == before


def test_a_dead_letter_is_replayed_from_its_own_page(admin: ConsoleClient) -> None:
    (letter, *_) = wait_until(lambda: messages(admin, "topic=%25DLQ%25billing"), "the letter")
    one = f"/messages/one?id={letter['offsetMsgId']}"
    replayed = admin.act(one, "replay", again="yes")

    assert "1 replayed." in replayed.text
    (order,) = messages(admin, "topic=orders&by=key&at=order-1")
    kept = admin.act(f"/messages/one?id={order['offsetMsgId']}", "replay")
    assert "Only dead letters are replayed" in kept.text


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_transaction_is_ended_by_hand(admin: ConsoleClient, node: Node, decision: str) -> None:
    with TransactionalProducer(f"ipc://{node.runtime}", group="shop") as shop:
        opened = shop.transaction()
        opened.send("orders", b"book", keys=[f"{decision}-by-hand"]).result(PATIENCE_S)
        wait_until(lambda: opened.id in open_transactions(admin), "the half message to be known")
        ended = admin.act(
            "/transactions", "end", group="shop", transaction=opened.id, decision=decision,
            messages="1",
        )  # fmt: skip
        left = open_transactions(admin)
    find = f"/messages?topic=orders&by=key&at={decision}-by-hand&export=json&table=messages"
    if decision == "commit":
        wait_until(lambda: json.loads(admin.get(find).text), "the message")

    assert f"1 messages of {opened.id}: {decision}." in ended.text
    assert opened.id not in left
    assert len(json.loads(admin.get(find).text)) == (decision == "commit")


def open_transactions(admin: ConsoleClient) -> list[str]:
    page = admin.get("/transactions?export=json&table=transactions")
    return [row["transaction"] for row in json.loads(page.text)]


def test_a_message_tells_its_life(admin: ConsoleClient) -> None:
    (message,) = json.loads(
        admin.get("/messages?topic=orders&by=key&at=order-1&export=json&table=messages").text
    )
    path = f"/messages/one?id={message['offsetMsgId']}"
    life = json.loads(admin.get(f"{path}&export=json&table=life").text)

    # What other tests do with it comes behind that.
    assert [row["what"] for row in life[:3]] == ["born", "stored", "dead"]
    assert [row["by"] for row in life[:3]] == ["orders", "orders", "%DLQ%billing"]
    assert life[1]["time"] == message["storeTimestamp"]
    assert "What has happened to it" in admin.get(path).text


def test_what_a_change_came_to_is_told_once_and_not_to_a_page_that_looks_by_itself(
    admin: ConsoleClient,
) -> None:
    form = {"change_key": admin.change_key(), "act": "remove", "owner": "user:nobody"}
    sent = admin.post("/quotas", form)
    itself = admin.get(sent.headers["location"], sec_fetch_dest="empty")
    first, second = admin.get("/quotas"), admin.get("/quotas")

    assert ["notice " in page.text for page in (itself, first, second)] == [False, True, False]


def test_what_a_client_has_written_is_text_in_every_page(admin: ConsoleClient) -> None:
    (message,) = json.loads(
        admin.get("/messages?topic=orders&by=key&at=order-1&export=json&table=messages").text
    )
    page = admin.get(f"/messages/one?id={message['offsetMsgId']}").text
    pages = [
        page,
        admin.get("/messages?topic=orders&by=last&queue=0").text,
        admin.get("/dead-letters/billing").text,
        admin.get("/messages?topic=%3Cscript%3Ealert(1)%3C/script%3E&by=last").text,
        admin.get("/topics?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").text,
        admin.get("/groups/%3Cscript%3Ealert(1)%3C%2Fscript%3E").text,
        admin.get("/handbook/%3Cscript%3Ealert(1)%3C%2Fscript%3E").text,
    ]

    assert "&lt;script&gt;alert(1)" in page
    for text in pages:
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert f'href="{LINK}' not in text


def test_every_table_of_a_page_is_a_file_too(admin: ConsoleClient) -> None:
    csv = admin.get("/topics?export=csv&table=topics")
    rows = json.loads(admin.get("/topics?export=json&table=topics").text)

    assert csv.headers["content-disposition"] == 'attachment; filename="topics.csv"'
    assert csv.text.splitlines()[0].startswith("topic,messages,")
    assert {"orders", "other"} <= {row["topic"] for row in rows}
    assert (
        admin.get("/topics?export=csv&table=nothing")
        .headers["content-type"]
        .startswith("text/html")
    )


@pytest.mark.parametrize(
    "path",
    ["/messages?topic=orders&by=time&at=yesterday", "/messages?topic=orders&by=offset&at=-1",
     "/messages?by=key&at=x", f"/topics?name={'x' * 2_000}",
     "/messages?topic=orders&queue=99999999999999999999"],
)  # fmt: skip
def test_what_cannot_be_asked_so_is_told(admin: ConsoleClient, path: str) -> None:
    page = admin.get(path)

    assert page.status == 400
    assert "verdict bad" in page.text


def test_curves_of_a_group_are_for_who_may_see_it(node: Node, admin: ConsoleClient) -> None:
    till = signed_in(node, user="till", secret=SECRET)
    admin.get("/groups/billing")

    wait_until(
        lambda: json.loads(admin.get("/groups/billing/lag.json").text)["lag"], "a sample of lag"
    )
    wait_until(lambda: json.loads(till.get("/curves.json").text)["messages_in"], "a sample")
    assert till.get("/groups/billing/lag.json").status == 200
    assert till.get("/groups/nobodys/lag.json").status in (403, 404)
    assert till.get("/topics/orders/rate.json").status == 200
    assert till.get("/topics/other/rate.json").status == 403


@pytest.mark.parametrize("host", ["[", "]:9", "a b", "x" * 300, "\x01", "[::1"])
def test_a_senseless_host_is_no_error_of_ours(admin: ConsoleClient, node: Node, host: str) -> None:
    admin.host = host

    assert admin.get("/topics").status in (200, 400)
    assert not node.logged("request met a bug")


def test_static_files_are_kept_for_good_and_nothing_else_is_one(admin: ConsoleClient) -> None:
    page = admin.get("/").text
    at = page.index("/static/")
    path = page[at : page.index('"', at)]
    version = path.split("/")[2]

    assert "immutable" in admin.get(f"/static/{version}/console.css").headers["cache-control"]
    for name in ("..%2Frendering.py", "../rendering.py", "README.md", "%2e%2e", "console.css%00"):
        assert admin.get(f"/static/{version}/{name}").status == 404
    assert admin.get("/static/console.css").status == 404


def test_a_secret_that_is_another_now_ends_the_visits(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        access = AccessAdmin(broker)
        access.set_user("courier", {"secretKey": "first-secret"}, mode="add")
        client = ConsoleClient(where(node))
        wait_until(
            lambda: client.sign_in(user="courier", secret="first-secret").status == 303, "sign-in"
        )
        assert client.get("/topics").status == 200
        access.set_user("courier", {"secretKey": "second-secret"}, mode="alter")
        wait_until(lambda: client.get("/topics").status == 303, "the visit to end")


def test_the_documentation_is_linked_where_it_was_brought_and_shown_to_who_signed_in(
    node: Node, admin: ConsoleClient
) -> None:
    linked = 'href="/documentation"' in admin.get("/handbook").text
    first, page = admin.get("/documentation"), admin.get(f"/documentation/{FIRST_PAGE}")
    stranger = ConsoleClient(where(node)).get(f"/documentation/{FIRST_PAGE}")

    assert linked is SITE.is_file()
    assert (first.status, page.status) == ((303, 200) if linked else (404, 404))
    assert not linked or "<title>" in page.text
    assert stranger.status == 303 and stranger.headers["location"].startswith("/sign-in")


ODD = (
    "", "x" * 300, "x" * 1_001, "..", "%00", "%ff", "-1", "9" * 30, "\u202e", "\N{SNOWMAN}" * 90,
    "a b", "{}", "%2e%2e%2f", "[", "NaN", "what-to-do.md", "\n", "0x10", "None",
)  # fmt: skip


def test_no_value_that_is_asked_or_sent_is_an_error_of_ours(
    node: Node, admin: ConsoleClient
) -> None:
    names = ("by", "topic", "queue", "at", "id", "as", "table", "export", "to", "after", "offset")
    paths = "topics", "groups", "dead-letters", "handbook", "documentation", "static", "x"
    statuses = set()
    for odd in map(quote, ODD):
        statuses |= {admin.get(f"/{path}/{odd}").status for path in paths}
        query = "&".join(f"{name}={odd}" for name in names)
        for path in PAGES:
            statuses.add(admin.get(f"{path}{'&' if '?' in path else '?'}{query}").status)
    forms = {
        "/": "transfer", "/topics": "create", "/topics/orders": "alter delete", "/groups": "create",
        "/groups/billing": "alter delete reset", "/dead-letters/billing": "replay",
        "/timers": "cancel", "/transactions": "end", "/users": "add alter remove",
        "/quotas": "set remove",
    }  # fmt: skip
    nonsense = {"decision": "neither", "messages": "x", "offset": "-", "name": "\x01"}
    key = admin.change_key("/topics")
    for path, acts in forms.items():
        for act in acts.split():
            # With nothing that the form has, and with odd things that it has not.
            for fields in ({}, nonsense):
                form = {"change_key": key, "act": act, **fields}
                statuses |= {admin.post(path, form).status, admin.get(path).status}

    assert statuses <= {200, 303, 400, 401, 403, 404, 429, 503}, statuses
    assert not node.logged("Traceback")
    assert node.status()["counters"]["observer"]["requests_failed"] == 0


def test_who_guesses_is_told_to_wait(node: Node) -> None:
    """Last: this address waits for a while then."""
    client = ConsoleClient(where(node))
    found = [client.sign_in(user="till", secret=f"guess-{n}").status for n in range(ATTEMPTS + 1)]

    assert found[-1] == 429
    assert client.sign_in(user="till", secret=SECRET).status == 429


def test_without_tokens_an_address_shows_numbers_to_its_own_machine_alone(
    make_node: Callable[[], Node],
) -> None:
    node, port = make_node(), free_port()
    start_client_node(node, listen={"http": f"127.0.0.1:{port}"})
    wait_until(lambda: answers(node), "the observer to answer")
    here = ConsoleClient(where(node))
    with Producer(f"ipc://{node.runtime}") as producer:
        producer.send("orders", b"not for everybody", queue_id=0).result(PATIENCE_S)

    wait_until(lambda: here.get("/topics").status == 200, "the node to lead")
    assert here.cookies == {}
    wait_until(
        lambda: here.get("/messages?topic=orders&by=last").status == 403, "the message's refusal"
    )
    assert ConsoleClient(where(node), host=f"localhost:{port}").get("/topics").status == 200
    assert ConsoleClient(where(node), host="evil.example").get("/topics").status == 403
    led_here = ConsoleClient(where(node), host="evil.example")
    assert led_here.get("/curves.json").status == 403
    assert led_here.get("/topics", authorization="Bearer anything").status == 403
    assert led_here.get("/metrics").status == led_here.get("/nothing").status == 403
    assert led_here.get("/health/live").status == here.get("/metrics").status == 200


def test_at_the_unix_socket_the_account_is_who_asks(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node, listen={"http": "unix"})
    path: Path = node.runtime / "http.sock"
    wait_until(lambda: listens(path), "the socket")
    client = ConsoleClient(path, host="localhost")
    wait_until(lambda: client.get("/topics").status == 200, "the node to lead")
    fields = {"read_queues": "1", "write_queues": "1", "perm": "6"}

    assert "Topic mine was created." in client.act("/topics", "create", topic="mine", **fields).text
    forged = ConsoleClient(path, host="localhost")
    assert forged.post("/topics", {"act": "create", "topic": "forged", **fields}).status == 403
    assert ConsoleClient(path, host="evil.example").get("/topics").status == 403


def test_under_tls_a_visit_is_kept_for_it_alone_and_ends_with_its_token(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    node, port = make_node(), free_port()
    certificate, key = make_certificate(tmp_path)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"operator {ADMIN} admin\n")
    tokens.chmod(0o600)
    start_client_node(
        node,
        listen={"http": f"0.0.0.0:{port}", "trusted_network": False},
        http={
            "tls_certificate_file": str(certificate),
            "tls_key_file": str(key),
            "tokens_file": str(tokens),
        },
    )
    client = ConsoleClient(("127.0.0.1", port), host="node.example", tls=True)

    def is_in() -> bool:
        try:
            return client.sign_in(token=ADMIN).status == 303
        except OSError:
            return False

    wait_until(is_in, "the observer to answer")
    (cookie,) = client.set_cookies
    assert cookie.startswith("__Host-ledgermq-")
    assert "Secure" in cookie and "Path=/" in cookie and "Domain" not in cookie
    assert client.get("/processes").status == 200
    tokens.write_text(f"other {LOOK} look\n")
    node.signal(signal.SIGHUP)

    wait_until(lambda: client.get("/processes").status == 303, "the visit to end")


def test_a_node_that_hangs_is_told_in_words(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node, listen={"http": f"127.0.0.1:{free_port()}"})
    wait_until(lambda: answers(node), "the observer to answer")
    client = ConsoleClient(where(node))
    node.signal(signal.SIGSTOP)
    try:
        hanging = client.get("/")
    finally:
        node.signal(signal.SIGCONT)
    wait_until(lambda: client.get("/").status == 200, "the supervisor to answer again")

    assert hanging.status == 503
    assert "verdict bad" in hanging.text and "silent" in hanging.text


def test_a_node_may_have_no_console(make_node: Callable[[], Node]) -> None:
    node, port = make_node(), free_port()
    start_client_node(node, listen={"http": f"127.0.0.1:{port}"}, http={"console": False})

    def asked(path: str) -> str:
        try:
            with connect(("127.0.0.1", port)) as client:
                client.sendall(
                    f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
                )
                client.shutdown(socket.SHUT_WR)
                return read_all(client).decode().partition("\r\n")[0]
        except OSError:
            return ""

    wait_until(lambda: "200" in asked("/health/live"), "the observer to answer")
    assert "404" in asked("/")
    assert "404" in asked("/sign-in")
    pid = node.child("observer")["pid"]
    assert "jinja2" not in Path(f"/proc/{pid}/maps").read_text()
