"""Who a client is, by what the kernel and CURVE say of it, and what it may do."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ledgermq.broker.call_rights import check_call
from ledgermq.model.config.settings import AccessSection
from ledgermq.model.errors import BusyError, NoPermissionError, NotLeaderError
from ledgermq.model.names.system_topics import TRACE_TOPIC
from ledgermq.model.rights import Right
from ledgermq.rules.access.access import User, UserTable
from ledgermq.sessions.client_rights import AccessGate, ClientRights, Peer
from tests.whole_broker import verbs

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
UID = 54_321
LOCAL = Peer(f"localhost:{UID}:{UID}:99")
ROOT = Peer("localhost:0:0:99")
REMOTE = Peer("10.0.0.7", KEY)
STRANGER = Peer("10.0.0.8", "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID")


def table(**users: dict[str, object]) -> UserTable:
    made = UserTable()
    for name, fields in users.items():
        made.put(User.read(name, fields))
    return made


def rights(peer: Peer, users: UserTable, **settings: object) -> ClientRights:
    section = AccessSection(**{"enabled": True, **settings})  # type: ignore[arg-type]
    return ClientRights(AccessGate(section, users), peer)


def test_a_local_account_is_the_user_that_the_settings_name() -> None:
    users = table(app={"topicPerms": ["t=PUB"]})
    mapped = rights(LOCAL, users, unix_users=("nobody-else=x", f"{UID}=app"))
    by_group = rights(LOCAL, users, unix_users=(f"@{UID}=app",))

    mapped.check_topic("t", Right.PUB)
    by_group.check_topic("t", Right.PUB)
    with pytest.raises(NoPermissionError, match=r"app \(uid 54321\).*SUB.*'t'"):
        mapped.check_topic("t", Right.SUB)


def test_an_account_that_is_no_user_is_refused_with_its_number() -> None:
    with pytest.raises(NoPermissionError, match=f"none of the node's users.*uid {UID}"):
        rights(LOCAL, table()).check_topic("t", Right.PUB)
    with pytest.raises(NoPermissionError, match="does not exist"):
        rights(LOCAL, table(), unix_users=(f"{UID}=gone",)).check_topic("t", Right.PUB)


@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_root_and_the_nodes_own_account_are_operators(uid: int) -> None:
    operator = rights(Peer(f"localhost:{uid}:{uid}:99"), table())
    operator.check_topic("t", Right.PUB)
    operator.check_group("g")
    operator.check_admin("acl_set")

    assert operator.who.is_operator


def test_a_key_is_its_users_and_a_local_address_that_a_remote_tells_counts_for_nothing() -> None:
    users = table(orders={"publicKeys": [KEY], "topicPerms": ["t=SUB"], "groupPerms": ["g=SUB"]})
    known = rights(REMOTE, users)
    known.check_topic("t", Right.SUB)
    known.check_group("g")
    disguised = Peer("localhost:0:0:1", STRANGER.key)

    assert not disguised.is_local
    with pytest.raises(NoPermissionError, match="orders"):
        known.check_group("h")
    with pytest.raises(NoPermissionError):
        rights(disguised, users).check_topic("t", Right.SUB)


def test_without_keys_an_address_is_its_users_if_it_is_one_users_alone() -> None:
    fields: dict[str, object] = {"whiteRemoteAddress": "10.0.0.*", "topicPerms": ["t=SUB"]}
    peer = Peer("10.0.0.7")
    rights(peer, table(a=fields)).check_topic("t", Right.SUB)

    with pytest.raises(NoPermissionError):
        rights(peer, table(a=fields, b=fields)).check_topic("t", Right.SUB)


def test_rights_change_with_the_users_also_for_who_is_connected() -> None:
    users = table(orders={"publicKeys": [KEY], "topicPerms": ["t=SUB"]})
    one = rights(REMOTE, users)
    one.check_topic("t", Right.SUB)
    users.put(User.read("orders", {"publicKeys": [KEY]}))
    with pytest.raises(NoPermissionError, match="has not the right"):
        one.check_topic("t", Right.SUB)
    users.put(User.read("orders", {"topicPerms": ["t=SUB"]}))
    with pytest.raises(NoPermissionError, match="none of the node's users"):
        one.check_topic("t", Right.SUB)


def test_only_keys_of_users_are_let_in_where_users_are_checked() -> None:
    users = table(orders={"publicKeys": [KEY]})
    checked = AccessGate(AccessSection(enabled=True), users)
    unchecked = AccessGate(AccessSection(), users)

    assert checked.lets_key_in(KEY.encode()) == KEY.encode()
    assert checked.lets_key_in(STRANGER.key.encode()) is None
    assert unchecked.lets_key_in(STRANGER.key.encode()) == STRANGER.key.encode()


def test_what_the_node_notes_for_itself_is_for_admins() -> None:
    users = table(reader={"publicKeys": [KEY], "defaultTopicPerm": "SUB"})
    with pytest.raises(NoPermissionError):
        rights(REMOTE, users).check_topic("LEDGERMQ_SYSTEM", Right.SUB)


def test_admin_calls_come_from_this_machine_unless_the_settings_say_otherwise() -> None:
    users = table(chief={"publicKeys": [KEY], "admin": True})
    with pytest.raises(NoPermissionError, match=r"access\.admin_over_clients"):
        rights(REMOTE, users).check_admin("topic_create")
    rights(REMOTE, users, admin_over_clients=True).check_admin("topic_create")
    rights(LOCAL, users, unix_users=(f"{UID}=chief",)).check_admin("topic_create")
    with pytest.raises(NoPermissionError):
        rights(STRANGER, users, admin_over_clients=True).check_admin("topic_create")


def test_where_no_users_are_checked_the_socket_decides_and_admin_calls_stay_local() -> None:
    local, remote = (rights(peer, table(), enabled=False) for peer in (LOCAL, Peer("10.0.0.7")))
    for one in (local, remote):
        one.check_topic("t", Right.PUB)
        one.check_group("g")
        check_call(one, verbs(), "some_later_call", {})
    local.check_admin("topic_create")
    with pytest.raises(NoPermissionError):
        remote.check_admin("topic_create")


def test_a_call_of_which_nothing_is_said_is_for_admins_alone() -> None:
    users = table(orders={"publicKeys": [KEY], "defaultTopicPerm": "PUB|SUB"})
    with pytest.raises(NoPermissionError):
        check_call(rights(REMOTE, users), verbs(), "some_later_call", {"topic": "t"})


def test_a_call_needs_the_right_to_its_topic_and_its_group() -> None:
    users = table(orders={"publicKeys": [KEY], "topicPerms": ["t=SUB"], "groupPerms": ["g=SUB"]})
    one = rights(REMOTE, users)
    check_call(one, verbs(), "group_commit", {"topic": "t", "group": "g"})
    check_call(one, verbs(), "route", {"topic": "t"})

    for verb, arguments in (
        ("group_commit", {"topic": "t", "group": "h"}),
        ("group_commit", {"topic": "u", "group": "g"}),
        ("route", {"topic": "t", "create": True}),
        ("route", {"topic": "u"}),
    ):
        with pytest.raises(NoPermissionError):
            check_call(one, verbs(), verb, arguments)


def test_an_admins_act_is_logged_with_who_what_and_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with pytest.raises(NoPermissionError):
        check_call(
            rights(REMOTE, table()),
            verbs(),
            "acl_set",
            {"user": "me", "fields": {"secretKey": "s"}},
        )
    act = check_call(rights(ROOT, table()), verbs(), "acl_set", {"user": "me"})
    listing = check_call(rights(ROOT, table()), verbs(), "acl_list", {})
    (line,) = (vars(record) for record in caplog.records)

    assert (line["act"], line["on"], line["outcome"]) == ("acl_set", "user:me", "refused")
    assert "10.0.0.7" in line["who"]
    assert act is not None and act.subject == "user:me"
    assert listing is None


@pytest.mark.parametrize(
    "address", ["", "localhost", "localhost:0:0", "localhost:0:0:1x", ":0:0:1"]
)
def test_who_tells_no_whole_local_address_is_nobody(address: str) -> None:
    everybody = table(all={"whiteRemoteAddress": "*", "admin": True})
    unknown = Peer(address)

    assert not unknown.is_local
    with pytest.raises(NoPermissionError, match=r"access\.admin_over_clients"):
        rights(unknown, table(), enabled=False).check_admin("topic_create")
    if not address:
        with pytest.raises(NoPermissionError, match="without an address"):
            rights(unknown, everybody).check_topic("t", Right.PUB)


def test_whose_rights_are_too_old_is_told_to_ask_again_whatever_it_wants() -> None:
    row = {"admin": True, "publicKeys": [KEY]}
    users = table(own={"topicPerms": ["t=PUB"], "publicKeys": [STRANGER.key]})
    users.follow_cluster({"shop": row}, too_old=False)
    shop = rights(REMOTE, users, admin_over_clients=True)
    shop.check_topic("t", Right.PUB)
    was_admin = shop.is_admin
    users.follow_cluster({"shop": row}, too_old=True)
    checks: list[Callable[[], None]] = [
        lambda: shop.check_topic("t", Right.PUB),
        lambda: shop.check_topic(TRACE_TOPIC, Right.PUB),
        lambda: shop.check_group("g"),
        lambda: shop.check_known("route"),
        lambda: shop.check_listed("route"),
        lambda: shop.check_admin("acl_set"),
    ]
    for check in checks:
        with pytest.raises(BusyError, match="too old"):
            check()

    assert (was_admin, shop.is_admin) == (True, False)
    rights(STRANGER, users).check_topic("t", Right.PUB)
    rights(ROOT, users).check_admin("acl_set")
    users.follow_cluster({"shop": row}, too_old=False)
    shop.check_admin("acl_set")


def test_nothing_is_decided_by_users_that_may_not_be_all() -> None:
    def refuse() -> None:
        raise NotLeaderError("node is starting")

    users = table(app={"topicPerms": ["t=PUB"], "groupPerms": ["g=SUB"]})
    section = AccessSection(enabled=True, unix_users=(f"{UID}=app",))
    gate = AccessGate(section, users)
    known = ClientRights(gate, LOCAL)
    known.check_topic("t", Right.PUB)
    gate.check_users = refuse
    checks: list[Callable[[], None]] = [
        # What was found before may hold no more, too.
        lambda: known.check_topic("t", Right.PUB),
        lambda: known.check_topic("other", Right.PUB),
        lambda: known.check_group("g"),
        lambda: known.check_known("route"),
        lambda: known.check_listed("route"),
        lambda: known.check_admin("acl_set"),
    ]
    for check in checks:
        with pytest.raises(NotLeaderError, match="starting"):
            check()
    operator = ClientRights(gate, ROOT)
    operator.check_topic("t", Right.PUB)
    operator.check_admin("acl_set")
