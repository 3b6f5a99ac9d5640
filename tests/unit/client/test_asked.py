"""Verbs that are declared once: what a type checker and a program see of them, in both forms."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from mypy import api

from ledgermq.client import (
    Admin,
    Consumer,
    DeadLetters,
    GroupConsumer,
    Queries,
)
from ledgermq.client.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncDeadLetters,
    AsyncGroupConsumer,
    AsyncQueries,
)
from ledgermq.model.errors import ConfigError
from tests.unit.client.peer import Peer

ROOT = Path(__file__).parents[3]

PROGRAM = """
from collections.abc import Coroutine
from typing import Any, assert_type

from ledgermq.client import (
    Admin, BatchResult, Consumer, DeadLetters, Decision, GivenBack, GroupConsumer, GroupRow,
    KeyedMessages, MessageBatch, Producer, Queries, ReceivedMessage, Replay, Requester, SendResult,
    TopicQueue, TopicSettings, Transaction, TransactionalProducer, TransactionResult,
)
from ledgermq.client.aio import (
    AsyncAdmin, AsyncConsumer, AsyncDeadLetters, AsyncProducer, AsyncQueries, AsyncRequester,
    AsyncTransaction, AsyncTransactionalProducer,
)
from ledgermq.client.core.questions import QueueRange
from ledgermq.client.sending.send_future import SendFuture


def wait(admin: Admin, queries: Queries, letters: DeadLetters) -> None:
    assert_type(admin.create_topic("t", queues=3), TopicSettings)
    assert_type(admin.groups(), list[GroupRow])
    assert_type(Admin.groups(admin), list[GroupRow])
    assert_type(queries.by_key("t", "k", messages_max=1), KeyedMessages)
    assert_type(queries.offsets("t", 0), QueueRange)
    assert_type(letters.replay([1], origin=True), Replay)


async def await_(admin: AsyncAdmin, queries: AsyncQueries, letters: AsyncDeadLetters) -> None:
    groups: Coroutine[Any, Any, list[GroupRow]] = admin.groups()
    assert_type(await groups, list[GroupRow])
    assert_type(await admin.create_topic("t", queues=3), TopicSettings)
    assert_type(await AsyncAdmin.groups(admin), list[GroupRow])
    assert_type(await queries.by_key("t", "k", messages_max=1), KeyedMessages)
    assert_type(await queries.offsets("t", 0), QueueRange)
    assert_type(await letters.replay([1], origin=True), Replay)


def wait_for_groups(
    requester: Requester, till: TransactionalProducer, admin: Admin, member: GroupConsumer
) -> None:
    assert_type(requester.request("t", b"", group="a", queue_key="k"), ReceivedMessage)
    assert_type(till.transaction("t"), Transaction)
    assert_type(till.send("t", b"", lambda _: Decision.COMMIT, group="a"), TransactionResult)
    assert_type(admin.of("a"), Admin)
    assert_type(member.poll(), MessageBatch)
    assert_type(member.assignment, frozenset[TopicQueue])
    requester.request("t", b"", flag=1)  # expect: Unexpected keyword argument "flag"


async def await_groups(
    requester: AsyncRequester,
    till: AsyncTransactionalProducer,
    admin: AsyncAdmin,
    consumer: AsyncConsumer,
    message: ReceivedMessage,
) -> None:
    async def commits(_id: str) -> Decision:
        return Decision.COMMIT

    assert_type(await requester.request("t", b"", timeout=1.0), ReceivedMessage)
    assert_type(till.transaction("t", group="a"), AsyncTransaction)
    assert_type(await till.send("t", b"", commits), TransactionResult)
    assert_type(await admin.of("a"), AsyncAdmin)
    assert_type(await consumer.retry_later(message), list[GivenBack])
    await till.send("t", b"", lambda _: Decision.COMMIT)  # expect: Awaitable[Decision | None]
    consumer.commit()  # expect: must be used
    Consumer.commit(consumer)  # expect: expected "Waits[


async def send(producer: Producer, aio: AsyncProducer, consumer: Consumer) -> None:
    assert_type(producer.send("t", b"", tag="a", delay=5, block=False), SendFuture[SendResult])
    assert_type(producer.of("a").send("t", b"", group="a"), SendFuture[SendResult])
    assert_type(producer.send_batch("t", [b""], keys=["k"]), SendFuture[BatchResult])
    assert_type(await aio.send("t", b"", queue_key="k"), SendResult)
    assert_type(consumer.committed(), dict[int, int])


async def misspelt(
    producer: Producer, aio: AsyncProducer, transaction: Transaction, requester: Requester
) -> None:
    producer.send("t", b"", tga="a")  # expect: Unexpected keyword argument "tga"
    producer.send("t", b"", keys=7)  # expect: incompatible type "int"; expected "Sequence[str]"
    producer.send_batch("t", [b""], unique_id="u")  # expect: keyword argument "unique_id"
    await aio.submit("t", b"", block=True)  # expect: Unexpected keyword argument "block"
    transaction.send("t", b"", delay=5)  # expect: Unexpected keyword argument "delay"
    requester.request("t", b"", flag=1)  # expect: Unexpected keyword argument "flag"


async def wrong(admin: Admin, aio: AsyncAdmin, queries: Queries) -> None:
    admin.create_topic("t", queue=3)  # expect: Unexpected keyword argument "queue"
    admin.create_topic("t", queues="3")  # expect: incompatible type "str"; expected "int | None"
    admin.create_topic("t", 3)  # expect: Too many positional arguments
    admin.reset_offsets("g", "t", "begin")  # expect: expected "Literal['first', 'last',
    await aio.alter_topic("t", force="yes")  # expect: incompatible type "str"; expected "bool"
    await aio.delete_group("g", with_ofsets=True)  # expect: did you mean "with_offsets"?
    await aio.lag()  # expect: Too few arguments
    aio.topics()  # expect: must be used
    queries.offsets("t")  # expect: Too few arguments
    Admin.topics(aio)  # expect: incompatible type "AsyncAdmin"; expected "Waits[
"""

TWINS = [(Admin, AsyncAdmin), (Queries, AsyncQueries), (DeadLetters, AsyncDeadLetters)]

OF_CONSUMERS = [
    (Consumer.commit, AsyncConsumer.commit),
    (Consumer.committed, AsyncConsumer.committed),
    (Consumer.ends, AsyncConsumer.ends),
    (GroupConsumer.commit, AsyncGroupConsumer.commit),
]
"""Beside verbs that differ in more than waiting."""


@pytest.mark.slow
def test_a_type_checker_sees_exact_types_in_both_forms_and_refuses_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    cache = f"--cache-dir={tmp_path / 'cache'}"

    told, failed, _ = api.run([str(program), "--config-file=pyproject.toml", cache])
    found = dict(re.findall(r"program\.py:(\d+): error: (.*)", told))
    lines = enumerate(PROGRAM.splitlines(), 1)
    wanted = {str(n): line.split("# expect: ")[1] for n, line in lines if "# expect: " in line}

    assert not failed
    assert found.keys() == wanted.keys(), told
    assert [n for n in wanted if wanted[n] not in found[n]] == [], told


@pytest.mark.parametrize(("waits", "awaits"), TWINS)
def test_both_forms_have_the_same_verbs_with_their_words(
    waits: type[object], awaits: type[object]
) -> None:
    verbs = [name for name in dir(waits) if not name.startswith("_") and name.islower()]
    verbs = [name for name in verbs if name not in ("as_of", "close", "each", "of", "run")]
    pairs = [(getattr(waits, name), getattr(awaits, name)) for name in verbs]

    assert verbs
    for waiting, awaiting in pairs:
        check_twins(waiting, awaiting)


@pytest.mark.parametrize(("waiting", "awaiting"), OF_CONSUMERS)
def test_a_verb_of_consumers_is_the_same_in_both_forms(
    waiting: Callable[..., object], awaiting: Callable[..., object]
) -> None:
    check_twins(waiting, awaiting)


def check_twins(waiting: Callable[..., object], awaiting: Callable[..., object]) -> None:
    assert waiting.__doc__
    assert waiting.__doc__ == awaiting.__doc__
    assert inspect.signature(waiting) == inspect.signature(awaiting)
    assert not inspect.iscoroutinefunction(waiting)
    assert inspect.iscoroutinefunction(awaiting)


def test_the_signature_is_that_of_the_declaration() -> None:
    admin = Admin("ipc:///nowhere")

    assert [*inspect.signature(Admin).parameters][:2] == ["address", "name"]
    assert list(inspect.signature(admin.lag).parameters) == ["group", "topic"]
    assert list(inspect.signature(admin.members).parameters) == ["group"]
    assert list(inspect.signature(Admin.members).parameters) == ["self", "group"]
    assert inspect.signature(Admin.lag).return_annotation == "list[QueueLag]"
    assert inspect.signature(Admin.topic).return_annotation == "TopicState"
    assert inspect.signature(Admin.create_topic).return_annotation == "TopicSettings"
    assert inspect.signature(AsyncAdmin.members).return_annotation == "GroupMembers"
    assert inspect.isgeneratorfunction(inspect.unwrap(Admin.groups))


def test_both_forms_are_told_the_same(peer: Peer) -> None:
    async def awaited() -> tuple[int, object]:
        async with AsyncQueries(peer.address) as queries:
            return await queries.read_queues("T"), await queries.offsets("T", 1)

    with Queries(peer.address) as queries:
        waited = queries.read_queues("T"), queries.offsets("T", 1)

    assert waited == asyncio.run(awaited())


def test_a_misspelt_field_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'queue'"):
        Admin("ipc:///nowhere").create_topic("t", queue=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'topics'"):
        Admin("ipc:///nowhere").lag("g", topics="t")  # type: ignore[call-arg]


def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(ConfigError, match=r"not open: async with AsyncAdmin\(…\)"):
        asyncio.run(AsyncAdmin("ipc:///nowhere").topics())
