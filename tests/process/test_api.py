"""The API of a real node: what it tells beside the commands, and what it changes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import jsonschema
import pytest

from ledgermq.cli.main import main
from ledgermq.client import Admin, Consumer, GroupConsumer, Producer, TransactionalProducer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.retries import DEAD
from ledgermq.observer.api.call_rows import CALLS
from tests.process.api_client import ApiClient, Told, there
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

BINARY = bytes(range(256))
LARGE = "ä" * 50_000
BODY_DEFAULT = 65_536
SHARERS = "sharers"


class Stored:
    """What the node has: messages by a word, a dead letter, a timer, a transaction, and a share
    group that has taken one.
    """

    def __init__(self, address: str, shop: TransactionalProducer) -> None:
        self.address = address
        self.ids: dict[str, str] = {}
        self.offset_ids: dict[str, str] = {}
        with Producer(address) as one:
            for word, body in (("text", b"hello"), ("binary", BINARY), ("large", LARGE.encode())):
                sent = one.send("orders", body, keys=[word], queue_id=0).result()
                self.ids[word] = sent.unique_id
                self.offset_ids[word] = sent.offset_message_id
            later = one.send("orders", b"later", delay=timedelta(hours=1)).result()
            self.timer = later.unique_id
            sick = one.send("other", b"sick", queue_id=0).result()
        with Admin(address, timeout_s=PATIENCE_S) as admin:
            wait_until(lambda: admin.topic("orders").messages == 3, "dispatch")
            (self.taken,) = admin.receive_shared(SHARERS, "orders", max_messages=1)
        with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
            wait_until(lambda: broker.timers(10).waiting, "the timer")
            asked = {"group": "billing", "position": sick.physical_offset, "delay_level": DEAD}
            broker.call("send_back", **asked)
            broker.call("group_commit", group="billing", topic="orders", offsets={"0": 1})
        self.transaction = shop.transaction()
        self.transaction.send("orders", b"book").result()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start_client_node(made, listen={"http": "unix"})
        where = made.runtime / "http.sock"
        wait_until(lambda: there(where), "the observer to answer")
        yield made


@pytest.fixture(scope="module")
def stored(node: Node) -> Iterator[Stored]:
    address = f"ipc://{node.runtime}"
    with TransactionalProducer(address, group="shop") as shop:
        yield Stored(address, shop)


@pytest.fixture
def api(node: Node) -> ApiClient:
    return ApiClient(node.runtime / "http.sock")


Command = Callable[..., Any]


@pytest.fixture
def command(node: Node, capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command prints as JSON, run in this process."""

    def run(*words: str) -> Any:
        where = ["--runtime-dir", str(node.runtime)]
        if words[0] not in ("status", "raft"):
            where = ["--address", f"ipc://{node.runtime}", "--timeout", "60"]
        capsys.readouterr()
        status = main([*words, "--json", *where])
        out = capsys.readouterr().out
        assert status == 0, (words, out)
        return json.loads(out)

    return run


def told(answer: Told) -> Any:
    assert answer.status == 200, answer.document
    return answer.document


def like(found: Any, wanted: Any) -> None:
    """The API tells what the command does; where the next page begins comes besides."""
    assert {name: found[name] for name in wanted} == wanted


# What the API tells is what the commands tell.


def test_topics_are_told_as_by_the_command(
    api: ApiClient, stored: Stored, command: Command
) -> None:
    like(told(api.get("/topics")), command("topic", "list"))
    like(told(api.get("/topics", all=True)), command("topic", "list", "--all"))
    like(told(api.get("/topics/orders")), command("topic", "show", "orders"))
    like(told(api.get("/topics/%25DLQ%25billing")), command("topic", "show", "%DLQ%billing"))


def test_groups_are_told_as_by_the_command(
    api: ApiClient, stored: Stored, command: Command
) -> None:
    with GroupConsumer(stored.address, group="readers") as consumer:
        consumer.subscribe("other")
        wait_until(lambda: consumer.poll(0.1), "a message")
        members = told(api.get("/groups/readers/members"))
        like(members, command("group", "members", "readers"))
    like(told(api.get("/groups")), command("group", "list"))
    like(told(api.get("/groups", all=True)), command("group", "list", "--all"))
    like(told(api.get("/groups/billing")), command("group", "show", "billing"))
    like(told(api.get("/groups/billing/lag")), command("group", "lag", "billing"))
    like(
        told(api.get("/groups/billing/lag", topic="orders")),
        command("group", "lag", "billing", "--topic", "orders"),
    )

    assert len(members["members"]) == 1
    assert told(api.get("/groups/billing/lag"))["lag"] == 2


def test_messages_are_told_as_by_the_command(
    api: ApiClient, stored: Stored, command: Command
) -> None:
    for word in ("text", "binary"):
        offset_id = stored.offset_ids[word]
        like(told(api.get("/message", id=offset_id)), command("message", "show", offset_id))
        unique = stored.ids[word]
        like(
            told(api.get("/message", id=unique, topic="orders")),
            command("message", "show", unique, "--topic", "orders"),
        )
        like(
            told(api.get("/message/track", id=offset_id)),
            command("message", "track", offset_id),
        )
        like(
            told(api.get("/topics/orders/find", key=word)),
            command("message", "find", "orders", "--key", word),
        )
    shown = told(api.get("/topics/orders/messages", body_max=200_000))
    like(shown, command("message", "browse", "orders", "--queue", "0"))
    last = told(api.get("/topics/orders/messages", last=True, limit=1, body_max=200_000))
    like(last, command("message", "browse", "orders", "--last", "--count", "1"))
    found = told(api.get("/topics/orders/find", begin=1, body_max=200_000))
    like(found, command("message", "find", "orders", "--from", "1"))

    assert [row["queueOffset"] for row in shown["messages"]] == [0, 1, 2]
    assert (shown["min"], shown["max"], shown["next"]) == (0, 3, None)
    assert base64.b64decode(shown["messages"][1]["bodyBase64"]) == BINARY


def test_of_a_long_body_the_beginning_is_told_and_its_size(api: ApiClient, stored: Stored) -> None:
    whole = told(api.get("/topics/orders/find", key="large", body_max=200_000))["messages"][0]
    cut = told(api.get("/topics/orders/find", key="large"))["messages"][0]
    odd = told(api.get("/message", id=stored.offset_ids["large"], body_max=7))["message"]
    none = told(api.get("/message", id=stored.offset_ids["large"], body_max=0))["message"]
    binary = told(api.get("/message", id=stored.offset_ids["binary"], body_max=5))["message"]

    assert whole["body"] == LARGE and "bodySize" not in whole
    assert cut["body"] == "ä" * (BODY_DEFAULT // 2) and cut["bodyLongerThan"] == BODY_DEFAULT
    assert odd["body"] == "äää"
    assert (none["body"], none["bodyLongerThan"]) == ("", 0)
    assert base64.b64decode(binary["bodyBase64"]) == BINARY[:5] and binary["bodySize"] == 256


def test_what_waits_is_told_as_by_the_command(
    api: ApiClient, stored: Stored, command: Command
) -> None:
    timers = told(api.get("/timers"))
    transactions = told(api.get("/transactions"))
    like(timers, command("timer", "list"))
    like(transactions, command("transaction", "list"))

    assert [row["unique_id"] for row in timers["timers"]] == [stored.timer]
    assert [row["transaction"] for row in transactions["transactions"]] == [stored.transaction.id]


def test_dead_letters_are_told_as_by_the_command(
    api: ApiClient, stored: Stored, command: Command
) -> None:
    listed = told(api.get("/dead-letters/billing"))
    like(told(api.get("/dead-letters")), command("dlq", "list"))
    like(listed, command("dlq", "list", "billing"))
    like(
        told(api.get("/dead-letters/billing/letter", offset=0)),
        command("dlq", "show", "billing", "0"),
    )

    assert [row["body"] for row in listed["messages"]] == ["sick"]


def test_the_node_is_told_as_by_the_command(
    api: ApiClient, stored: Stored, command: Command
) -> None:
    status, raft = told(api.get("/status")), told(api.get("/raft"))
    asked, asked_raft = command("status"), command("raft", "status")
    features = told(api.get("/features"))
    like(features, command("cluster", "features"))
    like(told(api.get("/raft/why-no-leader")), command("raft", "why-no-leader"))

    assert status.keys() == asked.keys()
    assert (status["node"], status["state"]) == (asked["node"], asked["state"])
    assert raft.keys() == asked_raft.keys()
    assert (raft["node"], raft["role"], raft["term"]) == (
        asked_raft["node"], asked_raft["role"], asked_raft["term"],
    )  # fmt: skip


def test_users_and_quotas_are_told_as_by_the_command_without_a_secret(
    api: ApiClient, stored: Stored, command: Command
) -> None:
    user = {"user": "clerk", "topicPerms": ["orders=PUB"], "secretKey": "0123456789"}
    made = told(api.change("POST", "/users", user))
    altered = told(api.change("PATCH", "/users/clerk", {"groupPerms": ["billing=SUB"]}))
    quota = told(api.change("PUT", "/quotas/client:host/7", {"produce_bytes": 1_000}))
    users, quotas = api.get("/users"), api.get("/quotas")
    like(told(users), command("acl", "list"))
    like(told(quotas), command("quota", "list"))
    again = api.change("POST", "/users", user)
    removed = told(api.change("DELETE", "/users/clerk"))
    lifted = told(api.change("DELETE", "/quotas/client:host/7"))

    assert (made["user"], made["has_secret_key"]) == ("clerk", True)
    assert (altered["topics"], altered["groups"]) == (["orders=PUB"], ["billing=SUB"])
    assert (quota["owner"], quota["produce_bytes"]) == ("client:host/7", 1_000)
    assert b"0123456789" not in users.answer.body
    assert (again.status, again.document["status"]) == (400, 400)
    assert (removed, lifted) == ({"removed": "clerk"}, {"removed": "client:host/7"})
    assert told(api.get("/users"))["users"] == []


# What the API changes.


def test_topics_are_made_changed_and_deleted(api: ApiClient, node: Node) -> None:
    made = told(api.change("POST", "/topics", {"topic": "sales", "queues": 3}))
    altered = told(api.change("PATCH", "/topics/sales", {"write_queues": 2, "perm": 4}))
    refused = api.change("PATCH", "/topics/sales", {"read_queues": 0})
    deleted = told(api.change("DELETE", "/topics/sales"))
    gone = api.get("/topics/sales")

    assert (made["read_queues"], made["write_queues"]) == (3, 3)
    assert (altered["write_queues"], altered["perm"]) == (2, 4)
    assert refused.status == 400
    assert deleted == {"deleted": "sales"}
    assert (gone.status, gone.document["error"]) == (404, "TOPIC_NOT_EXIST")
    assert gone.answer.headers["content-type"] == "application/problem+json"
    wait_until(
        lambda: node.logged("act=topic_delete on=topic:sales outcome=done"), "the audit line"
    )
    assert node.logged("(http)' act=topic_create on=topic:sales outcome=done")


def test_groups_are_made_changed_and_deleted_and_their_offsets_moved(
    api: ApiClient, stored: Stored
) -> None:
    made = told(api.change("POST", "/groups", {"group": "ledger", "retryMaxTimes": 3}))
    altered = told(api.change("PATCH", "/groups/ledger", {"consumeEnable": False}))
    cloned = told(
        api.change(
            "POST",
            "/groups/ledger/offsets/clone",
            {"source": "billing", "topic": "orders", "create": True},
        )
    )
    first = {"topic": "orders", "to": "first"}
    asked = told(api.change("POST", "/groups/ledger/offsets/reset", {**first, "dry_run": True}))
    moved = told(
        api.change(
            "POST",
            "/groups/ledger/offsets/reset",
            {"topic": "orders", "to": "number", "value": 2, "queues": [0]},
        )
    )
    wrong = api.change("POST", "/groups/ledger/offsets/reset", {**first, "value": 7})
    misspelt = api.change("POST", "/groups/legder/offsets/reset", first)
    deleted = told(api.change("DELETE", "/groups/ledger?offsets=true"))
    gone = api.get("/groups/ledger")

    assert made["fields"]["retryMaxTimes"] == 3
    assert altered["fields"]["consumeEnable"] is False
    assert [(row["queue"], row["new"]) for row in cloned["queues"]] == [(0, 1)]
    assert asked["done"] is False and asked["queues"][0]["new"] == 0
    assert [(row["old"], row["new"]) for row in moved["queues"]] == [(1, 2)]
    assert wrong.status == 400
    assert (misspelt.status, misspelt.document["error"]) == (404, "SUBSCRIPTION_GROUP_NOT_EXIST")
    assert deleted == {"deleted": "ledger"}
    assert (gone.status, gone.document["error"]) == (404, "SUBSCRIPTION_GROUP_NOT_EXIST")


def test_offsets_of_a_group_that_consumes_are_moved_by_force_alone(
    api: ApiClient, stored: Stored
) -> None:
    first = {"topic": "other", "to": "first"}
    with GroupConsumer(stored.address, group="busy") as consumer:
        consumer.subscribe("other")
        wait_until(lambda: consumer.poll(0.1), "a message")
        refused = api.change("POST", "/groups/busy/offsets/reset", first)
        forced = api.change("POST", "/groups/busy/offsets/reset", {**first, "force": True})

    assert (refused.status, refused.document["error"]) == (409, "GROUP_ACTIVE")
    assert forced.status == 200


def test_a_dead_letter_is_replayed_once(api: ApiClient, stored: Stored) -> None:
    once = told(api.change("POST", "/dead-letters/billing/replay", {}))
    more = told(api.change("POST", "/dead-letters/billing/replay", {"offsets": [0, 9]}))
    again = told(
        api.change("POST", "/dead-letters/billing/replay", {"offsets": [0], "again": True})
    )
    none = api.get("/dead-letters/billing/letter", offset=9)

    assert once == {"group": "billing", "replayed": [0], "already": [], "missing": []}
    assert (more["replayed"], more["already"], more["missing"]) == ([], [0], [9])
    assert again["replayed"] == [0]
    assert (none.status, none.document["error"]) == (404, "QUERY_NOT_FOUND")
    assert told(api.get("/dead-letters/billing"))["messages"][0]["replayed"] is True


def test_a_timer_is_cancelled_and_a_transaction_ended(api: ApiClient, stored: Stored) -> None:
    cancelled = told(api.change("POST", "/timers/cancel", {"id": stored.timer}))
    again = api.change("POST", "/timers/cancel", {"id": stored.timer})
    named = {"group": "shop", "id": stored.transaction.id}
    few = api.change("POST", "/transactions/end", {**named, "decision": "commit", "messages": 7})
    ended = told(
        api.change("POST", "/transactions/end", {**named, "decision": "commit", "messages": 1})
    )
    other = api.change("POST", "/transactions/end", {**named, "decision": "rollback"})

    assert cancelled == {"cancelled": stored.timer}
    assert again.status == 400
    assert (few.status, few.document["error"]) == (404, "TRANSACTION_UNKNOWN")
    assert ended == {"decision": "commit", "messages": 1}
    assert other.status == 409
    assert told(api.get("/timers"))["timers"] == []
    with Consumer(stored.address, topic="orders") as consumer:
        wait_until(
            lambda: any(message.body == b"book" for message in consumer.poll(0.1)), "the message"
        )


# Bounds.


def test_lists_come_in_pages(api: ApiClient, node: Node) -> None:
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        for number in range(7):
            admin.create_topic(f"page-{number}", queues=1)
    names: list[str] = []
    after: str | None = ""
    pages = 0
    while after is not None:
        page = told(api.get("/topics", limit=3, after=after))
        names += [row["topic"] for row in page["topics"]]
        after = page["next"]
        pages += 1
    everything = told(api.get("/topics", limit=1_000))
    over = api.get("/topics", limit=1_001)
    none = api.get("/topics", limit=0)

    assert names == [row["topic"] for row in everything["topics"]]
    assert everything["next"] is None
    assert pages == -(-len(names) // 3)
    assert (over.status, none.status) == (400, 400)
    assert over.document["details"]["limit"] == 1_000


def test_messages_come_in_pages(api: ApiClient, stored: Stored) -> None:
    first = told(api.get("/topics/orders/messages", limit=2))
    second = told(api.get("/topics/orders/messages", limit=2, offset=first["next"]))

    assert [row["queueOffset"] for row in first["messages"]] == [0, 1]
    assert second["messages"][0]["queueOffset"] == first["next"] == 2


@pytest.mark.parametrize(
    ("request_", "content", "status"),
    [
        ("GET /nothing", b"", 404),
        ("POST /nothing", b"", 404),
        ("PUT /topics", b"", 405),
        ("BREW /topics", b"", 405),
        ("GET /topics/orders/nothing", b"", 404),
        ("GET /topics/none", b"", 404),
        ("GET /topics/none/messages", b"", 404),
        ("GET /topics/orders/messages?queue=99", b"", 404),
        ("GET /groups/none", b"", 404),
        ("GET /groups/none/lag", b"", 404),
        ("GET /message?id=7F00000100002A9F00000000FFFFFFFF", b"", 404),
        ("GET /message?id=nonsense", b"", 400),
        ("GET /message", b"", 400),
        ("GET /message/track?id=nonsense&topic=orders", b"", 404),
        ("GET /topics/orders/find", b"", 400),
        ("GET /topics/orders/find?key=", b"", 400),
        ("GET /topics/orders/messages?offset=1&last=true", b"", 400),
        ("GET /topics/orders/messages?offset=-1", b"", 400),
        ("GET /topics/orders/messages?offset=99999999999999999999999999", b"", 400),
        ("GET /topics/orders/messages?offset=9223372036854775807", b"", 200),
        ("GET /topics/orders/messages?queue=" + "9" * 5_000, b"", 400),
        ("GET /topics/orders/messages?body_max=99999999", b"", 400),
        ("GET /topics?limit=1&limit=2", b"", 400),
        ("GET /topics?nothing=1", b"", 400),
        ("GET /topics?after=%00", b"", 400),
        ("GET /topics?after=%ff", b"", 200),
        ("GET /users?after=nonsense", b"", 400),
        ("GET /topics/%ff", b"", 400),
        ("GET /topics/%00", b"", 400),
        ("GET /topics/%0d%0aX-Evil:%201", b"", 400),
        ("GET /topics/" + "x" * 5_000, b"", 400),
        ("GET /topics/..%2f..%2fetc", b"", 404),
        ("GET /groups/%25RETRY%25/members", b"", 404),
        ("POST /topics", b"", 400),
        ("POST /topics", b"{", 400),
        ("POST /topics", b"[" * 60_000, 400),
        ("POST /topics", b'{"topic": "a b"}', 400),
        ("POST /topics", b'{"topic": "' + b"x" * 300 + b'"}', 400),
        ("POST /topics", b'{"topic": "a", "queues": 99999999}', 400),
        ("POST /topics", b'{"topic": "a", "queues": 1e400}', 400),
        ("POST /topics", b'{"topic": "a\\u0000"}', 400),
        ("POST /topics", b'{"topic": "\xff"}', 400),
        ("POST /topics", b'{"topic": "TBW102", "evil": 1}', 400),
        ("DELETE /topics/TBW102", b"", 403),
        ("POST /groups", b'{"group": "g", "retryMaxTimes": -9}', 400),
        ("POST /users", b'{"user": "u", "topicPerms": ["orders=EVERYTHING"]}', 400),
        ("PATCH /users/none", b'{"admin": true}', 400),
        ("DELETE /users/none", b"", 400),
        ("PUT /quotas/nobody", b'{"produce_bytes": 1}', 400),
        ("POST /raft/transfer", b'{"target": "n9"}', 400),
        ("POST /dead-letters/none/replay", b'{"offsets": [0]}', 404),
        ("POST /dead-letters/billing/replay", b'{"offsets": [-1]}', 400),
        ("POST /transactions/end", b'{"group": "g", "id": "i", "decision": "maybe"}', 400),
        ("POST /openapi.json", b"", 400),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_cannot_be_asked_is_a_problem_with_a_name(
    api: ApiClient, stored: Stored, request_: str, content: bytes, status: int
) -> None:
    method, _, path = request_.partition(" ")
    answer = api.send(method, path, content, {"Content-Type": "application/json"})

    assert answer.status == status, answer.document
    if status != 200:
        assert answer.answer.headers["content-type"] == "application/problem+json"
        assert answer.document["status"] == status
        assert answer.document["error"] and answer.document["detail"]
        assert "Traceback" not in answer.answer.text


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_no_form_of_a_browser_changes_anything(api: ApiClient, kind: str) -> None:
    content = b'{"topic": "forged"}'
    headers = {"Content-Type": kind} if kind else {}
    answer = api.send("POST", "/topics", content, headers)
    deleted = api.send("DELETE", "/topics/orders", b"", headers)

    assert (answer.status, deleted.status) == (415, 415)
    assert api.get("/topics/forged").status == 404


def test_every_answer_has_what_the_document_says(api: ApiClient, stored: Stored) -> None:
    document = told(api.get("/openapi.json"))
    names = {"topic": "orders", "group": "billing"}
    of_others = {"showShared": {**names, "group": SHARERS}}
    queries = {
        "findMessages": {"key": "text"},
        "showMessage": {"id": stored.offset_ids["text"]},
        "trackMessage": {"id": stored.offset_ids["text"]},
        "showDeadLetter": {"offset": 0},
    }
    asked = [call for call in CALLS if not call.changes]
    for call in asked:
        path = call.path.format(**of_others.get(call.name, names))
        answer = told(api.get(path, **queries.get(call.name, {})))
        path = document["paths"][f"/api/v1{call.path}"]["get"]
        schema = path["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(answer, schema)

    assert len(asked) > 15


def test_it_is_counted(api: ApiClient, node: Node) -> None:
    def counts() -> dict[str, int]:
        found: dict[str, int] = node.status()["counters"]["observer"]
        return found

    before = counts()
    api.get("/topics")
    api.change("POST", "/topics", {"topic": "counted", "queues": 1})
    api.get("/topics/none")
    after = counts()

    assert after["api_calls"] == before["api_calls"] + 3
    assert after["api_changes"] == before["api_changes"] + 1
