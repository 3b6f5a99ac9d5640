"""A node at a name server: told whole when something has changed, else asked whether it knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.gateway.names.registrations import PERIOD_MS, RETRY_MS
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command
from ledgermq.remoting.registration import TableVersion, decode_registration, decode_version
from tests.process.raw_name_server import RawNameServer, raw_name_server
from tests.unit.gateway.registered_node import RegisteredNode, topic


class Registered(RegisteredNode):
    """At one server."""

    def __init__(self, server: RawNameServer, root: Path) -> None:
        super().__init__(root, server.address)
        self.server = server

    def told(self, count: int) -> list[Command]:
        """What the server was told, so many times; nothing more is due then."""
        self.until(lambda: len(self.server.told) >= count and self.is_idle())
        assert len(self.server.told) == count
        return self.server.told


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[Registered]:
    with raw_name_server() as server:
        made = Registered(server, tmp_path)
        yield made
        made.close()


def test_a_server_that_knows_all_is_asked_each_half_minute_and_told_nothing(
    registered: Registered,
) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.server.fields = {"changed": "false"}
    for count in (2, 3):
        registered.now_ms += PERIOD_MS - 1
        registered.told(count - 1)
        registered.now_ms += 1
        registered.told(count)
    first, *later = registered.server.told
    table = decode_registration(first.fields, first.body)

    assert first.code == Code.REGISTER_BROKER
    assert table.is_whole
    assert table.topics["orders"].write_queues == 4
    assert [one.code for one in later] == [Code.QUERY_DATA_VERSION] * 2
    assert {decode_version(one.body) for one in later} == {table.version}
    assert registered.registrations.next_deadline_ms() == registered.now_ms + PERIOD_MS


def test_nobody_is_sent_to_a_port_that_refuses_connections(registered: Registered) -> None:
    registered.port.can_be_reached = False
    registered.lead("n0")
    registered.registrations.turn(registered.now_ms)
    assert (registered.registrations.next_deadline_ms(), registered.server.opened) == (None, 0)

    registered.port.can_be_reached = True
    assert [one.code for one in registered.told(1)] == [Code.REGISTER_BROKER]


@pytest.mark.parametrize("answer", [{"changed": "true"}, {}])
def test_a_server_that_knows_something_else_is_told_all_again(
    registered: Registered, answer: dict[str, str]
) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.server.fields = answer
    registered.now_ms += PERIOD_MS
    codes = [one.code for one in registered.told(3)]

    assert codes == [Code.REGISTER_BROKER, Code.QUERY_DATA_VERSION, Code.REGISTER_BROKER]


def test_what_changes_is_told_at_once_and_followers_tell_of_no_topics(
    registered: Registered,
) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.topics.put(topic("sales"), 2)
    changed = registered.told(2)[-1]
    registered.lead("n1")
    follows = registered.told(3)[-1]
    registered.topics.put(topic("more"), 3)
    registered.told(3)
    registered.lead("n0")
    leads = registered.told(4)[-1]

    assert set(decode_registration(changed.fields, changed.body).topics) == {"orders", "sales"}
    assert follows.fields["brokerId"] == "1"
    told = decode_registration(follows.fields, follows.body)
    assert (told.version, told.topics) == (TableVersion(), {})
    assert leads.fields["brokerId"] == "0"
    assert "more" in decode_registration(leads.fields, leads.body).topics


def test_a_server_whose_connection_has_ended_is_told_again_at_once(registered: Registered) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.server.drop()
    again = registered.told(2)[-1]

    assert again.code == Code.REGISTER_BROKER


def test_a_server_that_refuses_is_asked_again_later_and_later(registered: Registered) -> None:
    registered.server.code = 1
    registered.lead("n0")
    registered.told(1)
    first_ms = registered.registrations.next_deadline_ms()
    registered.now_ms = 2 * RETRY_MS
    registered.told(2)
    registered.server.code = 0
    registered.now_ms += 4 * RETRY_MS
    registered.told(3)

    assert first_ms == 2 * RETRY_MS
    assert registered.registrations.next_deadline_ms() == registered.now_ms + PERIOD_MS
