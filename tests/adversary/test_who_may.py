"""Who may what: each verb and each code, asked by everybody, by every way, against one table.

``who_may.txt`` was written by hand from docs/operating/access.md. LEDGERMQ_WHO_MAY=1 prints what
was found, as a table.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
from ledgermq.wire.query_frame import KeyQuery, PositionQuery
from ledgermq.wire.session import ACCOUNT, ADMIN, ANY_USER, LOOKS, SpokenFor
from tests.adversary.asked_things import ADMINS_SINK, OTHERS, OWN, About, Stored, request, verbs
from tests.adversary.callers import (
    CALLERS,
    SECRET,
    STRANGER,
    USERS,
    Connected,
    Outcome,
    Session,
    address_of,
    can_be_others,
    uid_of,
    unix_users,
)
from tests.certificates import make_certificate
from tests.process.conftest import Node, nodes_made
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_requests import TEMPLATES
from tests.process.remoting_steps import beat_when_leading
from tests.suite.patience import PATIENCE_S
from tests.whole_broker import codes
from tests.whole_broker import verbs as all_verbs

pytestmark = pytest.mark.slow

TABLE = Path(__file__).with_name("who_may.txt")
KINDS = ("PULL", "QUERY key", "QUERY position")
SEND = "SEND"
SYSTEM = "LEDGERMQ_SYSTEM"

LOOKED_AT = {
    "topics",
    "topic_show",
    "queue",
    "offset_by_time",
    "earliest_time",
    "groups",
    "group_list",
    "group_show",
    "group_lag",
    "group_offset",
    "group_members",
    "dead_letters",
    "share_show",
    "timers",
    "transactions",
    "features",
    "cluster_show",
    "cluster_topic_show",
    "cluster_topic_groups",
    "cluster_groups",
}
"""What tells names and numbers, and gives no message: it is asked for by who only looks."""

WORDS: Mapping[str, frozenset[str]] = {
    "all": frozenset(CALLERS),
    "users": frozenset(USERS),
    "topic": frozenset(("topic", "admin")),
    "group": frozenset(("group", "admin")),
    "admin": frozenset(("admin",)),
    "local": frozenset(("admin",)),
    "-": frozenset(),
}
"""What the table says; ``local``: an admin, on this machine unless the settings allow it."""


class Line(NamedTuple):
    """Who may, about what is named in the rights, and about what is not."""

    own: str
    others: str


def table() -> dict[str, Line]:
    """The table that was written by hand."""
    found: dict[str, Line] = {}
    for text in TABLE.read_text().splitlines():
        if text and not text.startswith("#"):
            name, own, others = (part.strip() for part in text.split("|"))
            assert name not in found, name
            found[name] = Line(own, others)
    return found


class Served(NamedTuple):
    """A node with all callers as users, and messages of both topics."""

    node: Node
    remoting: str
    consume: str
    produce: str
    keys: Mapping[str, Path]
    tls: ssl.SSLContext
    stored: Stored
    allows_tcp: bool


@contextmanager
def served(*, has_keys: bool, allows_tcp: bool, has_users: bool = True) -> Iterator[Served]:
    with nodes_made() as make:
        node = make()
        made, key = make_certificate(node.folder)
        port, to_write = free_port(), free_port()
        listen: dict[str, Any] = {
            "consume": f"tcp://127.0.0.1:{port}",
            "produce": f"tcp://127.0.0.1:{to_write}",
        }
        keys: dict[str, Path] = {}
        public: dict[str, str] = {}
        if has_keys:
            server = make_node_key(node.folder / "node.curve")
            listen["curve_secret_file"] = str(node.folder / "node.curve")
            keys = {name: node.folder / f"{name}.keys" for name in CALLERS}
            public = {name: make_client_keys(keys[name], server=server) for name in CALLERS}
        remoting = start_remoting_node(
            node,
            listen={**listen, "socket_mode": 0o666},
            access={
                "enabled": has_users,
                "admin_over_clients": allows_tcp,
                "unix_users": unix_users(),
            },
            remoting={"tls_certificate_file": str(made), "tls_key_file": str(key)},
        )
        for folder in (node.folder.parent, node.folder, node.runtime):
            folder.chmod(0o711)
        with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as one:
            access = AccessAdmin(one)
            for name, rights in USERS.items() if has_users else ():
                known = {"publicKeys": [public[name]]} if has_keys else {}
                by = {"secretKey": SECRET, "whiteRemoteAddress": address_of(name)}
                access.set_user(name, {**rights, **by, **known}, mode="add")
        admin = RemotingClient(remoting, signs=("admin", SECRET))
        beat_when_leading(admin, "admin", OWN.topic, group=OWN.group)
        beat_when_leading(admin, "admin", OTHERS.topic, group=OTHERS.group)
        tls = ssl.create_default_context(cafile=str(made))
        stored = Stored(admin)
        addresses = (f"127.0.0.1:{port}", f"127.0.0.1:{to_write}")
        yield Served(node, remoting, *addresses, keys, tls, stored, allows_tcp)
        admin.close()

        assert node.stop() == 0, node.log.read_text()[-3_000:]
        assert not node.logged("Traceback"), node.log.read_text()[-3_000:]


@pytest.fixture(scope="module")
def clear() -> Iterator[Served]:
    """Reached in clear; admins by the unix socket alone."""
    with served(has_keys=False, allows_tcp=False) as made:
        yield made


@pytest.fixture(scope="module")
def keyed(clear: Served) -> Iterator[Served]:
    """Reached with CURVE, with TLS, and signed in clear; admins by all of these."""
    del clear
    with served(has_keys=True, allows_tcp=True) as made:
        yield made


@pytest.fixture(scope="module")
def unchecked(keyed: Served) -> Iterator[Served]:
    """Users are not checked, and admins do not come by tcp: everybody is as good as any user."""
    del keyed
    with served(has_keys=False, allows_tcp=False, has_users=False) as made:
        yield made


Found = dict[tuple[str, About], dict[str, Outcome]]
"""By what was asked about what: what came of it for each caller."""


def expected(line: Line, about: About, *, is_admins_way: bool) -> frozenset[str]:
    word = line.own if about is OWN else line.others
    return frozenset() if word == "local" and not is_admins_way else WORDS[word]


def judge(way: str, found: Found, *, is_admins_way: bool, nobody: frozenset[str]) -> None:
    """Compare what was found with the table.

    Args:
        nobody: callers who are not even heard.
    """
    lines = table()
    wrong = []
    if os.environ.get("LEDGERMQ_WHO_MAY"):
        show(way, found)
    for (name, about), outcomes in found.items():
        let = {caller for caller, outcome in outcomes.items() if outcome.is_let}
        wanted = expected(lines[name], about, is_admins_way=is_admins_way) - nobody
        wanted &= outcomes.keys()
        if let != wanted:
            wrong.append((name, about.topic, sorted(let), sorted(wanted), outcomes))

    assert not wrong, "\n".join(map(str, wrong))


def show(way: str, found: Found) -> None:
    """Print the table: a caller a column, what is its own and what is another's."""
    print(f"\n{way:44}" + "".join(f"{caller:>16}" for caller in CALLERS))
    for name in dict.fromkeys(name for name, _ in found):
        cells = []
        for caller in CALLERS:
            let = [found[name, about].get(caller) for about in (OWN, OTHERS)]
            cells.append(
                " / ".join("?" if one is None else "yes" if one.is_let else "no" for one in let)
            )
        print(f"{name:44}" + "".join(f"{cell:>16}" for cell in cells))


def ask_all_verbs(served: Served, connect: Callable[[str], Session]) -> Found:
    found: Found = {}
    things = verbs(served.stored)
    admin = connect("admin")
    of_admin = {"sink": ADMINS_SINK, "batch": 0, "stages": [], "once": False}

    assert admin.call("sink_commit", of_admin).is_let
    admin.close()
    for caller in CALLERS:
        session = connect(caller)
        for about in (OWN, OTHERS):
            for verb, arguments in things.items():
                outcome = session.call(verb, arguments(about))
                found.setdefault((verb, about), {})[caller] = outcome
            position = PositionQuery(served.stored.position(about))
            for name, outcome in zip(
                KINDS,
                (
                    session.pull(about.topic),
                    session.query(KeyQuery(about.topic, "k")),
                    session.query(position),
                ),
                strict=True,
            ):
                found.setdefault((name, about), {})[caller] = outcome
        if session.is_heard:
            system = (session.pull(SYSTEM), session.query(KeyQuery(SYSTEM, "k")))

            assert not any(one.is_let for one in system), (caller, system)
        session.close()
    return found


def send_as_all(connect: Callable[[str], Session]) -> Found:
    """SEND, at the socket that takes nothing else."""
    found: Found = {}
    for caller in CALLERS:
        session = connect(caller)
        for about in (OWN, OTHERS):
            found.setdefault((SEND, about), {})[caller] = session.send(about.topic)
        assert not session.is_heard or not session.send(SYSTEM).is_let, caller
        session.close()
    return found


def ask_all_codes(served: Served, tls: ssl.SSLContext | None) -> Found:
    found: Found = {}
    for caller in CALLERS:
        client = Connected(served.remoting, caller, tls=tls)
        for about in (OWN, OTHERS):
            for code in TEMPLATES:
                fields, body = request(code, about, served.stored)
                one = client
                if code == Code.HEART_BEAT:
                    # Tools' requests are handed to who has sent one, and it would have to answer.
                    one = Connected(served.remoting, caller, tls=tls)
                outcome = one.ask(code, fields, body)
                found.setdefault((code.name, about), {})[caller] = outcome
                if one is not client:
                    one.close()
        pull = TEMPLATES[Code.PULL_MESSAGE].fields
        system = client.ask(Code.PULL_MESSAGE, {**pull, "topic": SYSTEM})

        assert not system.is_let, (caller, system)
        client.close()
    return found


def test_the_table_names_every_verb_and_every_code_and_nothing_else() -> None:
    assert table().keys() == {
        SEND,
        *all_verbs(),
        *KINDS,
        *(row.code.name for row in codes().values()),
    }


@pytest.mark.skipif(not can_be_others(), reason="other accounts need root")
def test_accounts_do_on_unix_sockets_what_the_table_says(clear: Served) -> None:
    def connect(name: str, caller: str) -> Session:
        return Session(f"ipc://{clear.node.runtime}/{name}", uid=uid_of(caller))

    found = ask_all_verbs(clear, partial(connect, "consume"))
    found |= send_as_all(partial(connect, "produce"))

    judge("unix", found, is_admins_way=True, nobody=frozenset())


@pytest.mark.skipif(not can_be_others(), reason="other accounts need root")
def test_accounts_do_on_the_stream_socket_what_they_do_on_that_of_zeromq(clear: Served) -> None:
    def connect(name: str, caller: str) -> Session:
        return Session(f"{clear.node.runtime}/{name}.sock", uid=uid_of(caller))

    def connect_zmq(name: str, caller: str) -> Session:
        return Session(f"ipc://{clear.node.runtime}/{name}", uid=uid_of(caller))

    found = send_as_all(partial(connect, "produce"))

    assert found == send_as_all(partial(connect_zmq, "produce"))
    assert {outcome.is_let for row in found.values() for outcome in row.values()} == {True, False}


@pytest.mark.parametrize("kind", [ANY_USER, ACCOUNT])
def test_who_is_spoken_for_may_what_it_may_itself(clear: Served, kind: str) -> None:
    def connect(caller: str) -> Session:
        spoken = SpokenFor(kind, "http", user=caller, uid=uid_of(caller), gid=uid_of(caller))
        return Session(f"ipc://{clear.node.runtime}/consume", speaks_for=spoken)

    found = ask_all_verbs(clear, connect)

    # Tokens of users come over the network, and accounts are on this machine.
    judge(f"http, {kind}", found, is_admins_way=kind == ACCOUNT, nobody=frozenset())


def test_where_nobody_is_checked_a_user_that_is_spoken_for_is(unchecked: Served) -> None:
    spoken = SpokenFor(ANY_USER, "http", user="topic")
    session = Session(f"ipc://{unchecked.node.runtime}/consume", speaks_for=spoken)
    outcomes = [session.pull(OWN.topic), session.call("topics", {}), session.call("acl_list", {})]
    session.close()

    assert not any(one.is_let for one in outcomes), outcomes


def test_who_only_looks_is_told_names_and_numbers_and_nothing_else(clear: Served) -> None:
    session = Session(f"ipc://{clear.node.runtime}/consume", speaks_for=SpokenFor(LOOKS, "anybody"))
    let = {
        name
        for name, arguments in verbs(clear.stored).items()
        for about in (OWN, OTHERS)
        if session.call(name, arguments(about)).is_let
    }
    messages = [
        session.pull(OWN.topic),
        session.pull(SYSTEM),
        session.query(KeyQuery(OWN.topic, "k")),
        session.query(PositionQuery(clear.stored.position(OWN))),
    ]
    session.close()

    assert let == LOOKED_AT
    assert not any(one.is_let for one in messages), messages


@pytest.mark.skipif(not can_be_others(), reason="other accounts need root")
@pytest.mark.parametrize("caller", ["admin", STRANGER])
def test_nobody_but_operators_speaks_for_others(clear: Served, caller: str) -> None:
    session = Session(
        f"ipc://{clear.node.runtime}/consume",
        uid=uid_of(caller),
        speaks_for=SpokenFor(ADMIN, "somebody"),
    )
    outcome = session.call("topics", {})
    session.close()

    # Its HELLO was refused: it has no session.
    assert "say HELLO first" in outcome.text


def test_addresses_do_over_clear_tcp_what_the_table_says(clear: Served) -> None:
    def connect(address: str, caller: str) -> Session:
        return Session(f"tcp://{address_of(caller)}:0;{address}")

    found = ask_all_verbs(clear, partial(connect, clear.consume))
    found |= send_as_all(partial(connect, clear.produce))

    judge("tcp", found, is_admins_way=False, nobody=frozenset())


def test_signatures_do_over_clear_tcp_what_the_table_says(clear: Served) -> None:
    found = ask_all_codes(clear, None)

    judge("remoting", found, is_admins_way=False, nobody=frozenset())


def test_keys_do_over_tcp_what_the_table_says(keyed: Served) -> None:
    def connect(address: str, caller: str) -> Session:
        are_known = caller != STRANGER
        return Session(f"tcp://{address}", keys=keyed.keys[caller], are_known=are_known)

    found = ask_all_verbs(keyed, partial(connect, keyed.consume))
    found |= send_as_all(partial(connect, keyed.produce))

    judge("tcp with keys", found, is_admins_way=True, nobody=frozenset((STRANGER,)))


@pytest.mark.parametrize("has_tls", [True, False])
def test_signatures_do_what_the_table_says_where_admins_may_come_by_tcp(
    keyed: Served, has_tls: bool
) -> None:
    found = ask_all_codes(keyed, keyed.tls if has_tls else None)

    judge("remoting with TLS" if has_tls else "remoting beside keys", found,
          is_admins_way=True, nobody=frozenset())  # fmt: skip


def test_where_nobody_is_checked_tcp_is_kept_from_admins_calls_and_the_nodes_own_notes(
    unchecked: Served,
) -> None:
    verbs_asked = ask_all_verbs(unchecked, lambda _: Session(f"tcp://{unchecked.consume}"))
    verbs_asked |= send_as_all(lambda _: Session(f"tcp://{unchecked.produce}"))
    codes_asked = ask_all_codes(unchecked, None)
    if os.environ.get("LEDGERMQ_WHO_MAY"):
        show("without users", verbs_asked | codes_asked)
    lines = table()
    wrong = [
        (name, outcomes)
        for (name, _), outcomes in (verbs_asked | codes_asked).items()
        if {one.is_let for one in outcomes.values()} != {lines[name].own not in ("local", "-")}
    ]

    assert not wrong, "\n".join(map(str, wrong))
