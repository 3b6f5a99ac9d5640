"""Users and rights: what RocketMQ's words mean, and what a table keeps to."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.model.rights import Right
from ledgermq.rules.access.access import User, UserTable, parse_rights
from ledgermq.rules.access.remote_address import check_pattern, matches

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
OTHER_KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"


def user(name: str = "orders", **fields: object) -> User:
    return User.read(name, fields)


def test_what_is_named_goes_before_what_holds_by_default() -> None:
    one = user(defaultTopicPerm="SUB", topicPerms=["a=DENY", "b=PUB|SUB"], groupPerms=["g=SUB"])

    assert [one.may_use_topic(topic, Right.SUB) for topic in "abc"] == [False, True, True]
    assert [one.may_use_topic(topic, Right.PUB) for topic in "abc"] == [False, True, False]
    assert [one.may_use_group(group) for group in "gh"] == [True, False]


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_topics_of_retries_and_dead_letters_belong_to_their_group(prefix: str) -> None:
    one = user(defaultTopicPerm="PUB|SUB", groupPerms=["g=SUB"])

    assert one.may_use_topic(f"{prefix}g", Right.SUB)
    assert one.may_use_topic(f"{prefix}g", Right.PUB)
    assert not one.may_use_topic(f"{prefix}h", Right.SUB)


def test_an_admin_may_do_all_unless_something_is_named() -> None:
    assert user(admin=True).may_use_topic("t", Right.PUB)
    assert not user(admin=True, topicPerms=["u=SUB"]).may_use_topic("t", Right.PUB)


def test_everybody_who_is_known_may_trace() -> None:
    assert user().may_use_topic("RMQ_SYS_TRACE_TOPIC", Right.PUB)
    assert not user().may_use_topic("RMQ_SYS_TRACE_TOPIC", Right.SUB)


def test_a_user_is_read_back_as_it_was_written() -> None:
    one = user(
        admin=True,
        publicKeys=[KEY],
        secretKey="12345678",
        whiteRemoteAddress="10.0.0.*",
        defaultGroupPerm="SUB",
        topicPerms=["a=PUB|SUB", "b=DENY"],
    )

    assert User.read(one.name, one.to_fields()) == one


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"secretKey": "short"}, "secret key"),
        ({"publicKeys": ["no key"]}, "public key"),
        ({"topicPerms": ["a"]}, "NAME=RIGHT"),
        ({"topicPerms": ["a=WRITE"]}, "WRITE"),
        ({"topicPerms": "a=PUB"}, "list"),
        ({"admin": "yes"}, "true or false"),
        ({"defaultTopicPerm": 4}, "text"),
        ({"whiteRemoteAddress": "10.0.0.300"}, "10.0.0.300"),
    ],
)
def test_a_field_that_cannot_be_used_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        user(**fields)


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 128, "a\n"])
def test_a_name_that_no_user_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not a name"):
        user(name)


def test_a_key_is_one_users_alone_and_is_free_when_that_one_goes() -> None:
    table = UserTable()
    table.put(user("a", publicKeys=[KEY]))
    revision = table.revision

    with pytest.raises(ConfigError, match="another user's"):
        table.check(user("b", publicKeys=[OTHER_KEY, KEY]))
    table.check(user("a", publicKeys=[KEY, OTHER_KEY]))
    table.delete("a")
    table.check(user("b", publicKeys=[KEY]))
    table.put(user("b", publicKeys=[KEY]))
    owner = table.owner_of(KEY)

    assert table.revision > revision
    assert owner is not None and owner.name == "b"
    assert UserTable.read(table.to_document()).to_document() == table.to_document()


def test_rights_are_read_as_rocketmq_writes_them() -> None:
    both = Right.PUB | Right.SUB

    assert parse_rights(["a=PUB", "b=SUB|PUB", "c=DENY"], owner="o") == {
        "a": Right.PUB,
        "b": both,
        "c": Right.DENY,
    }
    assert both.text == "PUB|SUB"


@pytest.mark.parametrize(
    ("pattern", "address", "is_meant"),
    [
        ("", "10.0.0.1", False),
        ("*", "10.0.0.1", True),
        ("*.*.*.*", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.10", False),
        ("10.0.0.1,10.0.0.9", "10.0.0.9", True),
        ("10.0.0.{7,9}", "10.0.0.9", True),
        ("10.0.0.{7,9}", "10.0.0.8", False),
        ("10.0.0.*", "10.0.0.255", True),
        ("10.0.0.1-9", "10.0.0.9", True),
        ("10.0.0.1-9", "10.0.0.10", False),
        ("10.0.1-9.*", "10.0.3.77", True),
        ("fe80:0:0:0:1:2:3:*", "fe80::1:2:3:4", True),
        ("fe80::1", "fe80:0:0:0:0:0:0:1", True),
        ("10.0.0.*", "fe80::1", False),
        ("10.0.0.*", "::ffff:10.0.0.7", True),
        ("10.0.0.{7,9}", "::ffff:10.0.0.8", False),
        ("10.0.0.7", "::ffff:a00:7", True),
        ("::ffff:10.0.0.7", "10.0.0.7", True),
        ("10.0.0.*", "localhost:0:0:1", False),
    ],
)
def test_a_pattern_means_the_addresses_that_rocketmq_means(
    pattern: str, address: str, is_meant: bool
) -> None:
    check_pattern(pattern)

    assert matches(pattern, address) == is_meant


@pytest.mark.parametrize("pattern", ["10.0.0", "10.0.0.9-1", "10.0.0.x", "host", "10.0.0.1,x"])
def test_a_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        check_pattern(pattern)
