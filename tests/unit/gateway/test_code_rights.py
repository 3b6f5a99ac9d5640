"""Which rights each request code needs, and whose a request is."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ledgermq.gateway.code_rights import CodeNeed
from ledgermq.gateway.dispatcher import PortAccess
from ledgermq.model.config.settings import AccessSection
from ledgermq.model.errors import NoPermissionError
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command
from ledgermq.remoting.signature import ACCESS_KEY, SIGNATURE, signature
from ledgermq.rules.access.access import User, UserTable
from tests.process.remoting_requests import TO_CLIENTS
from tests.whole_broker import codes

SECRET = "12345678"

USERS = {
    "orders": {"secretKey": SECRET, "topicPerms": ["a=PUB", "b=SUB"], "groupPerms": ["g=SUB"]},
    "boss": {"secretKey": SECRET, "admin": True},
    "white": {"whiteRemoteAddress": "10.0.0.*", "defaultTopicPerm": "PUB"},
}


def as_it_is(_user: str, secret: str) -> str:
    return secret


def access(*, enabled: bool = True, over_clients: bool = True) -> PortAccess:
    users = UserTable()
    for name, fields in USERS.items():
        users.put(User.read(name, fields))
    return PortAccess(
        AccessSection(enabled=enabled, admin_over_clients=over_clients), users, as_it_is
    )


def signed(code: int, user: str = "orders", body: bytes = b"", **fields: str) -> Command:
    fields = {ACCESS_KEY: user, **fields}
    return Command(code, 1, {**fields, SIGNATURE: signature(fields, body, SECRET)}, body)


def is_let(command: Command, *, host: str = "127.0.0.1", rules: PortAccess | None = None) -> bool:
    try:
        (rules or access()).admitted(host, command, codes()[command.code])
    except NoPermissionError:
        return False
    return True


def test_every_code_that_a_broker_knows_has_its_row() -> None:
    assert set(Code) - TO_CLIENTS == codes().keys()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (signed(Code.SEND_MESSAGE, topic="a"), True),
        (signed(Code.SEND_MESSAGE, topic="b"), False),
        (signed(Code.SEND_MESSAGE_V2, b="a"), True),
        (signed(Code.SEND_BATCH_MESSAGE, b="b"), False),
        (signed(Code.SEND_MESSAGE_V2, b="%RETRY%g"), True),
        (signed(Code.SEND_MESSAGE_V2, b="%RETRY%h"), False),
        (signed(Code.PULL_MESSAGE, topic="b", consumerGroup="g"), True),
        (signed(Code.PULL_MESSAGE, topic="b", consumerGroup="h"), False),
        (signed(Code.PULL_MESSAGE, topic="a", consumerGroup="g"), False),
        (signed(Code.UPDATE_CONSUMER_OFFSET, topic="b", consumerGroup="h"), False),
        (signed(Code.LOCK_BATCH_MQ, body=b'{"consumerGroup":"g"}'), True),
        (signed(Code.LOCK_BATCH_MQ, body=b'{"consumerGroup":"h"}'), False),
        (signed(Code.GET_MAX_OFFSET, topic="a"), True),
        (signed(Code.GET_MAX_OFFSET, topic="c"), False),
        (signed(Code.DELETE_TOPIC_IN_BROKER, topic="a"), False),
        (signed(Code.DELETE_TOPIC_IN_BROKER, user="boss", topic="a"), True),
        (signed(Code.GET_BROKER_RUNTIME_INFO), True),
        (Command(Code.GET_BROKER_RUNTIME_INFO), False),
        (Command(Code.GET_ROUTEINFO_BY_TOPIC, 1, {"topic": "a"}), True),
        (signed(Code.GET_BROKER_RUNTIME_INFO, user="nobody"), False),
    ],
)
def test_a_request_is_let_through_by_the_rights_of_who_signed_it(
    command: Command, expected: bool
) -> None:
    assert is_let(command) == expected


def test_a_heartbeat_needs_the_rights_to_its_groups_and_topics() -> None:
    def beat(group: str, topic: str) -> Command:
        wanted = [{"groupName": group, "subscriptionDataSet": [{"topic": topic}]}]
        body = json.dumps({"clientID": "c", "consumerDataSet": wanted}).encode()
        return signed(Code.HEART_BEAT, body=body)

    assert is_let(beat("g", "b"))
    assert not is_let(beat("h", "b"))
    assert not is_let(beat("g", "a"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda command: {**command.fields, "topic": "other"},
        lambda command: {**command.fields, SIGNATURE: ""},
        lambda command: {**command.fields, "more": "x"},
    ],
)
def test_what_was_not_signed_so_is_refused(spoil: Callable[[Command], dict[str, str]]) -> None:
    command = signed(Code.SEND_MESSAGE, topic="a", body=b"hello")
    assert is_let(command)
    command.fields = spoil(command)

    assert not is_let(command)


def test_addresses_stand_for_their_user_without_a_signature() -> None:
    command = Command(Code.SEND_MESSAGE, 1, {"topic": "any"})

    assert is_let(command, host="10.0.0.9")
    assert not is_let(command, host="10.0.1.9")
    assert not is_let(Command(Code.PULL_MESSAGE, 1, {"topic": "any", "consumerGroup": "g"}),
                      host="10.0.0.9")  # fmt: skip


def test_admin_calls_need_the_setting_even_where_nobody_is_checked() -> None:
    delete = Command(Code.DELETE_TOPIC_IN_BROKER, 1, {"topic": "a"})

    assert is_let(delete, rules=access(enabled=False))
    assert not is_let(delete, rules=access(enabled=False, over_clients=False))
    assert not is_let(signed(Code.DELETE_TOPIC_IN_BROKER, user="boss", topic="a"),
                      rules=access(over_clients=False))  # fmt: skip


def test_a_user_that_is_removed_is_nobody_at_once() -> None:
    users = UserTable()
    users.put(User.read("orders", USERS["orders"]))
    rules = PortAccess(AccessSection(enabled=True), users, as_it_is)
    command = signed(Code.SEND_MESSAGE, topic="a")
    assert is_let(command, rules=rules)

    users.delete("orders")

    assert not is_let(command, rules=rules)


def test_nothing_that_changes_something_is_let_go_of_when_its_sender_has_closed() -> None:
    for_sender = {code for code, row in codes().items() if row.is_for_sender}

    assert for_sender == {
        Code.PULL_MESSAGE,
        Code.LITE_PULL_MESSAGE,
        Code.QUERY_MESSAGE,
        Code.VIEW_MESSAGE_BY_ID,
        Code.CHECK_CLIENT_CONFIG,
        Code.GET_CONSUME_STATS,
        Code.GET_BROKER_CONSUME_STATS,
        # What a pop has taken is given back where nobody is told.
        Code.POP_MESSAGE,
        Code.PEEK_MESSAGE,
        Code.NOTIFICATION,
    }
    assert all(codes()[code].needs.need is not CodeNeed.ADMIN for code in for_sender)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.0.0.9", True),
        ("10.0.0.8", False),
        ("fd00::1", True),
        ("fd01::1", False),
        ("fe80::1%eth0", False),
    ],
)
@pytest.mark.parametrize("enabled", [False, True])
def test_routes_are_taken_from_hosts_that_the_settings_name_whoever_signs(
    host: str, expected: bool, enabled: bool
) -> None:
    rules = access(enabled=enabled)
    command = Command(Code.REGISTER_BROKER, 1, {"brokerName": "b"})
    by_default = is_let(command, host=host, rules=rules)
    rules.take_settings(
        AccessSection(enabled=enabled, admin_over_clients=True),
        ("10.1.0.0/16", "10.0.0.9", "fd00::/16"),
    )

    assert not by_default
    assert is_let(command, host=host, rules=rules) is expected
    assert is_let(signed(Code.REGISTER_BROKER, user="boss"), host=host, rules=rules) is expected
