"""gRPC clients that the process knows: their streams, and what they declare."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.gateway.rpc import clients
from ledgermq.gateway.rpc.callers import Callers, RpcCaller
from ledgermq.gateway.rpc.clients import RpcClients
from ledgermq.model.config.settings import AccessSection, Settings, StoreSection
from ledgermq.model.errors import BusyError, NoPermissionError
from ledgermq.model.rights import Right


@pytest.fixture
def callers(tmp_path: Path) -> Callers:
    settings = Settings(
        store=StoreSection(path_root_dir=tmp_path), access=AccessSection(enabled=False)
    )
    return Callers(settings)


def caller(callers: Callers, name: str, host: str = "10.0.0.7") -> RpcCaller:
    return callers.caller([("x-mq-client-id", name)], host)


class _OneTopic:
    """Rights to send to one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def check_topic(self, topic: str, right: Right) -> None:
        assert right is Right.PUB
        if topic != self.topic:
            raise NoPermissionError("topic may not be used", topic=topic)


def test_a_stream_that_ends_gives_its_place_back_to_the_one_before(callers: Callers) -> None:
    known = RpcClients(lambda: 0.0)
    client = known.hear(caller(callers, "p"))
    first: asyncio.Queue[Any] = asyncio.Queue(4)
    second: asyncio.Queue[Any] = asyncio.Queue(4)
    client.streams += [first, second]
    assert client.tell("newest")
    client.streams.remove(second)
    assert client.tell("older")
    client.streams.remove(first)
    assert not client.tell("nobody")
    assert (first.get_nowait(), second.get_nowait()) == ("older", "newest")


def test_topics_of_one_owner_are_bounded_and_given_back_with_the_client(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "TOPICS_PER_OWNER", 4)
    known = RpcClients(lambda: 0.0)
    one = known.hear(caller(callers, "one"))
    known.declare(one, frozenset("abc"))
    known.declare(one, frozenset("ab"))
    other = known.hear(caller(callers, "other"))
    with pytest.raises(BusyError, match="limit=4"):
        known.declare(other, frozenset("abc"))
    known.declare(known.hear(caller(callers, "far", "10.0.0.8")), frozenset("abcd"))
    known.forget(one.caller)
    known.declare(one, frozenset("abcd"))
    known.declare(other, frozenset("abcd"))
    known.forget(other.caller)
    known.declare(known.hear(caller(callers, "other")), frozenset("wxyz"))


def test_nobody_is_asked_of_topics_that_it_may_not_send_to(callers: Callers) -> None:
    """Who declares many has no others' questions wait; a right that is given counts at once."""
    known = RpcClients(lambda: 0.0)
    asked = caller(callers, "p")
    limited: Any = asked._replace(rights=_OneTopic("a"))  # type: ignore[arg-type]
    client = known.hear(limited)
    client.streams.append(asyncio.Queue(1))
    known.declare(client, frozenset("abc"))
    assert known.topics() == {"a"}
    known.hear(asked)
    assert known.topics() == set("abc")
