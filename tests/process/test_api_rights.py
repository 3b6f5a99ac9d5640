"""Who may what over the API: each call by each caller; and what a follower says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ledgermq.client import Admin, Producer
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.observer.api.call_rows import CALLS, ApiCall
from tests.adversary.callers import as_account, can_be_others
from tests.process.api_client import ApiClient, Told, there
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CALLERS = ("nobody", "look", "gone", "nothing", "user", "admin")
"""Without a token; who looks; a user that does not exist; one without rights; one with ``orders``
and ``billing``; an admin."""

OWN_UID = 60_200
KNOWN = frozenset(CALLERS) - {"nobody"}
LOOKERS = KNOWN - {"gone", "nothing"}

WHO_MAY = {
    "status": KNOWN,
    "raft": KNOWN,
    "whyNoLeader": KNOWN,
    "transferLeadership": {"admin"},
    "features": KNOWN - {"gone"},
    "listMirrors": KNOWN,
    "listUsers": {"admin"},
    "addUser": {"admin"},
    "alterUser": {"admin"},
    "removeUser": {"admin"},
    "listQuotas": {"admin"},
    "setQuota": {"admin"},
    "removeQuota": {"admin"},
    "listTopics": KNOWN - {"gone"},
    "createTopic": {"admin"},
    "showTopic": LOOKERS,
    "alterTopic": {"admin"},
    "deleteTopic": {"admin"},
    "listGroups": KNOWN - {"gone"},
    "createGroup": {"admin"},
    "showGroup": LOOKERS,
    "alterGroup": {"admin"},
    "deleteGroup": {"admin"},
    "groupMembers": LOOKERS,
    "groupLag": LOOKERS,
    "resetOffsets": {"admin"},
    "cloneOffsets": {"admin"},
    "showShared": LOOKERS,
    "receiveShared": {"user", "admin"},
    "settleShared": {"user", "admin"},
    "endShared": {"admin"},
    "listDeadLetterGroups": KNOWN - {"gone"},
    "listDeadLetters": {"user", "admin"},
    "showDeadLetter": {"user", "admin"},
    "replayDeadLetters": {"admin"},
    "browseMessages": {"user", "admin"},
    "findMessages": {"user", "admin"},
    "showMessage": {"user", "admin"},
    "trackMessage": {"user", "admin"},
    "listTimers": KNOWN - {"gone"},
    "cancelTimer": KNOWN - {"gone", "look"},
    "listTransactions": KNOWN - {"gone"},
    "endTransaction": KNOWN - {"gone", "look"},
}
"""Written by hand from docs/operating/api.md: whose request about ``orders`` and ``billing`` is not
refused for want of a right. There is no such timer, and no such transaction: of those that there
are the broker looks at the topic (``tests/adversary/test_who_may.py``)."""

OTHERS_TOPIC = {
    "showTopic": {"look", "admin"},
    "browseMessages": {"admin"},
    "findMessages": {"admin"},
    "showGroup": {"look", "admin"},
    "groupMembers": {"look", "admin"},
    "groupLag": {"look", "admin"},
    "showShared": {"look", "admin"},
    "listDeadLetters": {"admin"},
}
"""The same about ``other`` and ``strangers``, which nobody has a right to."""


class Served(NamedTuple):
    """A node with tokens, and ids of a message of each topic and of a timer."""

    node: Node
    where: tuple[str, int]
    ids: dict[str, str]

    def api(self, caller: str) -> ApiClient:
        """As that caller."""
        return ApiClient(self.where, "" if caller == "nobody" else token(caller))


def token(caller: str) -> str:
    return f"{caller}-0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module", params=[True, False], ids=["checked", "unchecked"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with nodes_made() as make:
        node = make()
        port = free_port()
        tokens = node.folder / "tokens"
        words = {"look": "look", "admin": "admin"}
        lines = [f"{name} {token(name)} {words.get(name, f'user:{name}')}" for name in CALLERS[1:]]
        tokens.write_text("\n".join(lines) + "\n")
        tokens.chmod(0o600)
        start_client_node(
            node,
            listen={"http": f"127.0.0.1:{port}"},
            http={"tokens_file": str(tokens)},
            access={"enabled": request.param},
        )
        where = ("127.0.0.1", port)
        wait_until(lambda: there(where), "the observer to answer")
        yield Served(node, where, give(f"ipc://{node.runtime}"))


def give(address: str) -> dict[str, str]:
    """Users, messages, and a dead letter of ``billing``."""
    ids = {}
    with Admin(address, timeout_s=PATIENCE_S) as admin, Producer(address) as one:
        for group in ("billing", "strangers"):
            admin.create_group(group)
        for topic in ("orders", "other"):
            sent = one.send(topic, b"secret", keys=["k"], queue_id=0).result()
            ids[topic] = sent.offset_message_id
            wait_until(lambda topic=topic: admin.topic(topic).messages, "dispatch")
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        for group in ("billing", "strangers"):
            broker.call("group_commit", group=group, topic="orders", offsets={"0": 0})
        access = AccessAdmin(broker)
        access.set_user("nothing", {}, mode="add")
        rights = {
            "topicPerms": ["orders=PUB|SUB", "%DLQ%billing=SUB"],
            "groupPerms": ["billing=SUB"],
        }
        access.set_user("user", rights, mode="add")
    return ids


BODIES: dict[str, dict[str, object]] = {
    "transferLeadership": {"target": "n9"},
    "addUser": {"user": "user"},
    "alterUser": {"whiteRemoteAddress": ""},
    "setQuota": {},
    "createTopic": {"topic": "orders", "queues": 4},
    "alterTopic": {"perm": 6},
    "createGroup": {"group": "billing"},
    "alterGroup": {"consumeEnable": True},
    "resetOffsets": {"topic": "orders", "to": "first", "dry_run": True},
    "cloneOffsets": {"source": "strangers", "topic": "orders", "dry_run": True},
    "receiveShared": {"topic": "orders"},
    "settleShared": {"action": "accept", "handles": ["1:billing:orders:9:9:1:7"]},
    "replayDeadLetters": {"offsets": [9]},
    "cancelTimer": {"id": "none"},
    "endTransaction": {"group": "shop", "id": "none", "decision": "rollback"},
}
SPARED = frozenset({"endShared", "deleteTopic", "deleteGroup", "removeUser", "removeQuota"})
"""Asked for of what is not there: the others need what is."""


def ask(api: ApiClient, call: ApiCall, names: dict[str, str], message: str) -> Told:
    if call.name in SPARED:
        names = dict.fromkeys(names, "none") | {"owner": "topic:none"}
    path = call.path.format(**names)
    if call.changes:
        return api.change(call.method, path, BODIES.get(call.name, {}))
    queries: dict[str, dict[str, object]] = {
        "findMessages": {"key": "k"},
        "showMessage": {"id": message},
        "trackMessage": {"id": message},
        "showDeadLetter": {"offset": 0},
    }
    return api.get(path, **queries.get(call.name, {}))


def test_the_table_names_every_call() -> None:
    assert WHO_MAY.keys() == {call.name for call in CALLS}


@pytest.mark.long(but=1)
def test_each_caller_may_what_the_table_says(served: Served) -> None:
    names = {"topic": "orders", "group": "billing", "user": "user", "owner": "topic:orders"}
    found = {}
    for call in CALLS:
        statuses = {
            caller: ask(served.api(caller), call, names, served.ids["orders"]).status
            for caller in CALLERS
        }
        let = {caller for caller, status in statuses.items() if status not in (401, 403)}
        if let != WHO_MAY[call.name]:
            found[call.name] = statuses

        assert statuses["nobody"] == 401
        assert max(statuses.values()) < 500, (call.name, statuses)

    assert not found, "\n".join(map(str, found.items()))


def test_what_is_anothers_is_not_told(served: Served) -> None:
    names = {"topic": "other", "group": "strangers", "user": "user", "owner": "topic:other"}
    calls = {call.name: call for call in CALLS}
    for name, may in OTHERS_TOPIC.items():
        statuses = {
            caller: ask(served.api(caller), calls[name], names, "").status for caller in CALLERS
        }

        assert {caller for caller, one in statuses.items() if one not in (401, 403)} == may, name
    for caller in ("look", "user", "nothing"):
        told = served.api(caller).get("/message", id=served.ids["other"])
        tracked = served.api(caller).get("/message/track", id=served.ids["other"])

        assert (told.status, tracked.status) == (403, 403)
        assert b"secret" not in told.answer.body + tracked.answer.body


def test_a_refusal_says_who_lacks_which_right(served: Served) -> None:
    told = served.api("user").get("/topics/other/messages")
    change = served.api("user").change("POST", "/topics", {"topic": "mine"})
    looked = served.api("look").get("/topics/orders/messages")

    assert told.document["error"] == "NO_PERMISSION" and "SUB" in told.document["detail"]
    assert "user (http, user)" in told.document["detail"]
    assert "access.admin_over_clients" in change.document["detail"]
    assert "may only look" in looked.document["detail"]


def test_a_hand_over_that_is_refused_is_noted(served: Served) -> None:
    told = served.api("look").change("POST", "/raft/transfer", {"target": "n7"})

    assert told.status == 403
    wait_until(
        lambda: served.node.logged(
            "admin act who='look (http)' act=transfer on=n7 outcome=refused"
        ),
        "the line",
    )


def test_what_a_user_lists_is_of_its_own_dead_letters(served: Served) -> None:
    listed = {
        caller: served.api(caller).get("/dead-letters").document["groups"]
        for caller in ("look", "user", "nothing")
    }

    assert listed["nothing"] == []
    assert listed["user"] == listed["look"]


def test_an_address_without_tokens_shows_names_and_numbers_under_its_own_name_alone(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    port = free_port()
    start_client_node(node, listen={"http": f"127.0.0.1:{port}"})
    where = ("127.0.0.1", port)
    wait_until(lambda: there(where), "the observer to answer")
    api = ApiClient(where)
    listed = api.get("/topics")
    bodies = api.get("/topics/orders/messages")
    change = api.change("POST", "/topics", {"topic": "made"})
    users = api.get("/users")
    rebound = api.send("GET", "/topics", host="evil.example:80")

    assert listed.status == 200
    assert (bodies.status, change.status, users.status) == (403, 403, 403)
    assert (rebound.status, rebound.document["error"]) == (403, "NO_PERMISSION")


@pytest.mark.skipif(not can_be_others(), reason="other accounts need root")
def test_accounts_at_the_unix_socket_are_what_they_are_at_the_nodes_own(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start_client_node(
        node,
        listen={"http": "unix", "socket_mode": 0o666},
        access={"enabled": True, "unix_users": [f"{OWN_UID}=user"]},
    )
    for folder in (node.folder.parent, node.folder, node.runtime):
        folder.chmod(0o711)
    where = node.runtime / "http.sock"
    wait_until(lambda: there(where), "the observer to answer")
    ids = give(f"ipc://{node.runtime}")
    api = ApiClient(where)

    def ask_all() -> dict[str, int]:
        return {
            "own": api.get("/topics/orders/messages").status,
            "others": api.get("/topics/other/messages").status,
            "users": api.get("/users").status,
            "message": api.get("/message", id=ids["other"]).status,
            "transfer": api.change("POST", "/raft/transfer", {"target": "n9"}).status,
        }

    assert os.geteuid() == 0
    assert ask_all() == {"own": 200, "others": 200, "users": 200, "message": 200, "transfer": 400}
    assert as_account(OWN_UID, ask_all) == {
        "own": 200, "others": 403, "users": 403, "message": 403, "transfer": 403,
    }  # fmt: skip
    assert set(as_account(OWN_UID + 1, ask_all).values()) == {403}


def test_a_follower_says_who_leads_and_where_and_tells_of_itself(
    make_node: Callable[[], Node],
) -> None:
    def with_http(member: Member) -> None:
        text = member.node.config.read_text()
        members = ", ".join(f'"n{number}=http://127.0.0.1:{number + 1}"' for number in range(3))
        made = text.replace("[listen]", '[listen]\nhttp = "unix"')
        member.node.config.write_text(f"{made}\n[http]\nmembers = [{members}]\n")

    group: Group = make_group(make_node, ack="majority-memory", prepare=with_http)
    for member in group.members:
        member.node.wait_ready()
    apis = {}
    for member in group.members:
        where = member.node.runtime / "http.sock"
        wait_until(lambda where=where: there(where), "the observer")
        apis[member.name] = ApiClient(where)
    leader = group.leader()
    wait_until(lambda: apis[leader.name].get("/topics").status == 200, "the leader to answer")
    follower = group.others(leader)[0]
    wait_until(lambda: apis[follower.name].get("/topics").status == 421, "the follower to know")
    told = apis[follower.name].get("/topics")
    change = apis[follower.name].change("POST", "/topics", {"topic": "made"})
    own = {path: apis[follower.name].get(path) for path in ("/status", "/raft", "/features")}
    handed = apis[leader.name].change("POST", "/raft/transfer", {"target": follower.name})
    wait_until(lambda: apis[follower.name].get("/topics").status == 200, "the new leader")
    made = apis[follower.name].change("POST", "/topics", {"topic": "made"})

    assert told.document["error"] == "SERVICE_NOT_AVAILABLE"
    assert told.document["details"] == {
        "leader": leader.name,
        "url": f"http://127.0.0.1:{int(leader.name[1:]) + 1}",
    }
    assert change.status == 421
    assert {answer.status for answer in own.values()} == {200}
    assert own["/raft"].document["leader"] == leader.name
    assert own["/features"].document["node"] == follower.name
    assert (handed.status, handed.document["leader"]) == (200, follower.name)
    assert leader.node.logged(f"(http) (uid {os.getuid()})' act=transfer")
    assert made.status == 200
    leader.kill()
    for member in group.others(leader):
        if member is not follower:
            member.kill()
    alone = wait_until(
        lambda: (one := apis[follower.name].get("/topics")).status == 503 and one, "no leader"
    )

    assert alone.answer.headers["retry-after"] == "1"
    assert apis[follower.name].get("/status").status == 200
