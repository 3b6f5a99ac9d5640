"""Inquiries of callers of HTTP: what each may see and change, by whose rights it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from ledgermq.client import Admin, Producer
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import NoPermissionError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.observer.callers import ANYBODY, HttpCaller
from ledgermq.observer.health_source import HealthSource
from ledgermq.observer.inquiries.inquirer import Sources
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.verbs.access import ListUsers
from ledgermq.verbs.topics import CreateTopic, ShowTopic
from ledgermq.verbs.waiting import CancelTimer
from ledgermq.wire.session import ACCOUNT, ADMIN, ANY_USER
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

STRANGER_UID = 60_100
Told = TypeVar("Told")


@pytest.fixture(scope="module", params=[False, True], ids=["unchecked", "checked"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node, with and without checks of users, and a message in ``orders`` and ``other`` each."""
    with nodes_made() as make:
        made = make()
        start_client_node(
            made,
            access={"enabled": request.param, "unix_users": [f"{STRANGER_UID}=orders"]},
            listen={"socket_mode": 0o666},
        )
        address = f"ipc://{made.runtime}"
        with Producer(address) as one, Admin(address, timeout_s=PATIENCE_S) as admin:
            for topic in ("orders", "other"):
                one.send(topic, b"secret", queue_id=0)
                wait_until(lambda topic=topic: admin.topic(topic).messages, "dispatch")
        with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
            AccessAdmin(broker).set_user("orders", {"topicPerms": ["orders=PUB|SUB"]}, mode="add")
        yield made


def ask_as(
    node: Node, caller: HttpCaller, ask: Callable[[Inquiries], Coroutine[Any, Any, Told]]
) -> Told:
    """What ``ask`` finds for ``caller``."""

    async def run() -> Told:
        paths = RuntimePaths(node.runtime)
        with ThreadPoolExecutor(2) as thread:
            sources = Sources(paths, HealthSource(paths.control, thread), thread, {})
            try:
                return await ask(Inquiries(sources, caller))
            finally:
                sources.close()

    return asyncio.run(run())


def is_let(
    node: Node, caller: HttpCaller, ask: Callable[[Inquiries], Coroutine[Any, Any, object]]
) -> bool:
    try:
        ask_as(node, caller, ask)
    except NoPermissionError:
        return False
    return True


USER = HttpCaller(ANY_USER, "token", "orders")
NOBODY = HttpCaller(ANY_USER, "token", "gone")
OPERATOR = HttpCaller(ADMIN, "ops")
MAPPED = HttpCaller(ACCOUNT, f"uid {STRANGER_UID}", uid=STRANGER_UID, gid=STRANGER_UID)


def test_who_only_looks_sees_names_and_numbers_and_no_message(node: Node) -> None:
    topics = ask_as(node, ANYBODY, lambda inquiries: inquiries.topics())
    shown = ask_as(node, ANYBODY, lambda inquiries: inquiries.ask(ShowTopic("other")))

    assert [row["topic"] for row in topics["topics"]] == ["orders", "other"]
    assert shown["queues"][0]["end"] == 1
    assert not is_let(node, ANYBODY, lambda inquiries: inquiries.messages.browse("orders"))
    assert not is_let(node, ANYBODY, lambda inquiries: inquiries.messages.by_key("orders", "k"))
    assert not is_let(node, ANYBODY, lambda inquiries: inquiries.ask(CreateTopic("made")))
    assert not is_let(node, ANYBODY, lambda inquiries: inquiries.page(ListUsers()))
    assert not is_let(node, ANYBODY, lambda inquiries: inquiries.node.transfer("n0"))
    assert not is_let(node, ANYBODY, lambda inquiries: inquiries.ask(CancelTimer("none")))


@pytest.mark.parametrize("caller", [USER, MAPPED], ids=["user", "account"])
def test_a_user_sees_messages_of_its_own_topics_alone(node: Node, caller: HttpCaller) -> None:
    checked = caller is USER or "enabled = true" in node.config.read_text()
    own = ask_as(node, caller, lambda inquiries: inquiries.messages.browse("orders"))

    assert [row["body"] for row in own["messages"]] == ["secret"]
    assert is_let(node, caller, lambda one: one.messages.browse("other")) == (not checked)
    assert is_let(node, caller, lambda one: one.ask(ShowTopic("other"))) == (not checked)
    assert is_let(node, caller, lambda one: one.ask(CreateTopic("orders", queues=4))) == (
        not checked
    )


def test_a_token_of_a_user_that_does_not_exist_is_let_do_nothing(node: Node) -> None:
    assert not is_let(node, NOBODY, lambda inquiries: inquiries.topics())
    assert not is_let(node, NOBODY, lambda inquiries: inquiries.messages.browse("orders"))


def test_an_admin_does_all_but_read_what_the_node_notes_for_itself(node: Node) -> None:
    made = ask_as(node, OPERATOR, lambda one: one.ask(CreateTopic("made", queues=2)))
    read = ask_as(node, OPERATOR, lambda one: one.messages.browse("other"))

    assert (made["topic"], made["write_queues"]) == ("made", 2)
    assert len(read["messages"]) == 1
    assert not is_let(node, OPERATOR, lambda one: one.messages.browse(SYSTEM_TOPIC))
    assert node.logged("admin act who='ops (http)' act=topic_create on=topic:made outcome=done")
