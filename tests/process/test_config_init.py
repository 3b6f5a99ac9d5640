"""A group of three that was made by ``config init``: who comes in with what it has made."""

from __future__ import annotations

import re
import shutil
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.model.errors import LedgerError
from ledgermq.model.features import LEVEL
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.conftest import Node, wait_until
from tests.process.first_group import HOSTS, FirstGroup
from tests.process.group_nodes import Member
from tests.process.node_start import run_command
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS
from tests.process.test_group_members import raft_status
from tests.suite.patience import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl"),
]

FIELDS = dict(
    zip("abcdefghijk", ("p", "orders", "TBW102", 4, 0, 0, NOW_MS, 0, "", 0, "false"), strict=True)
)


@pytest.fixture
def made(make_node: Callable[[], Node]) -> Iterator[FirstGroup]:
    first = FirstGroup(make_node)
    first.let_users_in()
    yield first
    assert first.group.stop() == [0, 0, 0]


def test_our_clients_come_in_with_their_keys_and_rocketmqs_over_tls_with_a_signature(
    made: FirstGroup,
) -> None:
    number = made.group.members.index(made.group.leader())
    leads = made.name_servers.split(";")[number]
    trusted = ssl.create_default_context(cafile=str(made.certificates))
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with Producer(made.addresses("shop"), options=options) as producer:
        producer.send("orders", b"by keys").result()
    signed = RemotingClient(leads, signs=("shop", made.secret("shop")), tls=trusted)
    with closing(signed):
        stored = signed.ask(RequestCode.SEND_MESSAGE_V2, FIELDS, b"signed")
        refused = signed.ask(RequestCode.SEND_MESSAGE_V2, {**FIELDS, "b": "other"}, b"no")
    with Consumer(made.addresses("shop"), topic="orders") as consumer:
        bodies = {bytes(message.body) for message in islice(consumer, 2)}

    assert stored.code == ResponseCode.SUCCESS, stored
    assert refused.code == ResponseCode.NO_PERMISSION
    assert bodies == {b"by keys", b"signed"}


def test_every_member_has_the_certificate_of_its_address_and_lets_nobody_in_otherwise(
    made: FirstGroup,
) -> None:
    trusted = ssl.create_default_context(cafile=str(made.certificates))
    for address in made.name_servers.split(";"):
        with closing(RemotingClient(address, tls=trusted)) as stranger:
            # Verified against the address; to read routes nobody signs.
            route = stranger.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            unsigned = stranger.ask(RequestCode.SEND_MESSAGE_V2, FIELDS, b"no")
        with closing(RemotingClient(address)) as clear, pytest.raises(ConnectionError):
            clear.ask(RequestCode.GET_BROKER_CLUSTER_INFO)

        assert route.code == ResponseCode.SUCCESS
        assert unsigned.code != ResponseCode.SUCCESS
    for host in HOSTS:
        hurried = ProducerOptions(timeout_s=0.5)
        address = f"tcp://{host}:{made.consume_port}"
        with pytest.raises(LedgerError), Producer(address, options=hurried) as keyless:
            keyless.send("orders", b"no").result()


def test_the_doctor_finds_no_fault_in_keys_ports_members_and_settings(made: FirstGroup) -> None:
    for member in made.group.members:
        config = str(member.node.config)
        done = run_command("doctor", "--config", config, "--only", "keys,ports,peers,settings")

        assert done.returncode == 0, done.stdout


def level_of(member: Member) -> int:
    level: int = member.node.status()["counters"]["broker"]["feature_level"]
    return level


@pytest.mark.long
def test_two_hosts_take_in_the_witness_that_was_made_for_them(
    make_node: Callable[[], Node],
) -> None:
    first = FirstGroup(make_node, has_witness=True)
    *full, witness = first.group.members
    for member in first.group.members:
        member.node.wait_ready()
    leader = first.group.leader(besides=witness)
    wait_until(lambda: level_of(leader) == LEVEL, "the level to be in force")
    address = f"{HOSTS[2]}:{first.peer_port}"
    config = ("--config", str(leader.node.config))
    add = ("raft", "add", "n2", address, "--witness", "--without-bodies", *config)
    done = run_command(*add)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: raft_status(witness)["leader"] == leader.name, "the witness to hear of it")
    # Of the time before it was a member they are told for some seconds.
    wait_until(lambda: not raft_status(witness)["refusals"], "it to be let in by both")
    doctor = run_command(
        "doctor", "--config", str(witness.node.config), "--only", "keys,ports,peers,settings,store"
    )
    other = next(member for member in full if member is not leader)
    leader.kill()
    wait_until(lambda: other.leads, "the other one to lead with the witness's vote")
    leader.start()
    leader.node.wait_ready()

    assert " ".join(add[:-2]) in first.said
    assert doctor.returncode == 0, doctor.stdout
    assert not list(witness.node.folder.rglob("users.key"))
    assert not list(witness.node.folder.rglob("clients.key"))
    assert first.group.stop() == [0, 0, 0]


def test_users_are_let_in_where_the_group_is_led_and_a_follower_says_where_that_is(
    make_node: Callable[[], Node],
) -> None:
    first = FirstGroup(make_node)
    leader = first.let_users_in()
    follower = first.group.others(leader)[0]
    follower.node.wait_ready()
    wait_until(
        lambda: raft_status(follower)["leader"] == leader.name,
        "the follower to have heard who leads",
    )
    words = ("access", "apply", str(first.made), "--address", follower.address)
    refused = run_command(*words)
    other = run_command("acl", "remove", "shop", "--timeout", "1", "--address", follower.address)
    sent = run_command("send", "orders", "x", "--timeout", "1", "--address", follower.address)
    shown = follower.command("status").stdout
    everywhere = ",".join(member.address for member in first.group.members)
    at_all = run_command("acl", "remove", "nobody", "--address", everywhere)
    moved = leader.command("raft", "transfer", follower.name, "--timeout", str(PATIENCE_S))
    wait_until(lambda: follower.leads, "the other one to lead")
    done = run_command(*words)

    assert refused.returncode == 1
    assert f"`ledgermq raft transfer {follower.name}`" in refused.stderr
    assert f"do='type it on the host of {leader.name}, which leads" in other.stderr
    assert f"do='type it on the host of {leader.name}, which leads" in sent.stderr
    assert "do=" not in at_all.stderr, at_all.stderr
    assert re.search(r"^role +follower in term \d+$", shown, re.MULTILINE), shown
    assert re.search(r"^features +level \d+", shown, re.MULTILINE), shown
    assert (moved.returncode, done.returncode) == (0, 0), done.stderr
    assert first.group.stop() == [0, 0, 0]
