"""Users, rights and quotas on real nodes: who gets in, what is refused, what a new leader keeps."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions, Queries, TraceTopic, Tracing
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import (
    ConnectDeniedError,
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    QuotaError,
    UnreachableError,
)
from ledgermq.model.names.system_topics import TRACE_TOPIC
from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Member, free_port, make_group, producer
from tests.process.node_start import run_command
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


class Guarded:
    """A node of its own with users, open over tcp with keys."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.server = make_node_key(node.folder / "node.key")
        self.consume = self.produce = free_port()
        while self.produce == self.consume:
            self.produce = free_port()
        self.configure(access={"enabled": True})
        node.serve()

    def configure(self, **tables: dict[str, Any]) -> None:
        """Write the settings, with these besides those of the sockets."""
        node = self.node
        node.configure(
            store={"mapped_file_size_commit_log": 262_144, "max_hash_slot_num": 500,
                   "max_index_num": 400, "mapped_file_size_consume_queue": 20_000},
            listen={"consume": f"tcp://127.0.0.1:{self.consume}",
                    "produce": f"tcp://127.0.0.1:{self.produce}",
                    "curve_secret_file": str(node.folder / "node.key")},
            **tables,
        )  # fmt: skip

    def reload(self, **tables: dict[str, Any]) -> None:
        """Have the node read other settings."""
        self.configure(**tables)
        self.node.signal(signal.SIGHUP)

    @property
    def local(self) -> str:
        """Address of the unix sockets: the tests have the node's account, and are operators."""
        return f"ipc://{self.node.runtime}"

    def keys(self, name: str) -> tuple[str, str]:
        """Address with new keys, and the public one of them."""
        file = self.node.folder / f"{name}.keys"
        public = make_client_keys(file, server=self.server)
        return f"tcp://127.0.0.1:{self.consume}?keys={file}", public

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``ledgermq`` as the operator."""
        return run_command(*words, "--address", self.local)


@pytest.fixture
def guarded(make_node: Callable[[], Node]) -> Iterator[Guarded]:
    yield Guarded(make_node())


def sender(address: str, **options: Any) -> Producer:
    return Producer(address, options=ProducerOptions(timeout_s=PATIENCE_S, **options))


def refusal(act: Callable[[], object]) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        act()
    return caught.value


def asked(broker: Broker) -> AccessAdmin:
    return AccessAdmin(broker)


def test_users_over_tcp_do_what_they_have_the_right_to_and_nothing_else(guarded: Guarded) -> None:
    address, public = guarded.keys("orders")
    with connect_broker(guarded.local, name="operator", timeout_s=PATIENCE_S) as broker:
        admin = asked(broker)
        for topic in ("mine", "theirs"):
            broker.create_topic(topic, 1)
        admin.set_user("orders", {"publicKeys": [public], "topicPerms": ["mine=PUB"]}, mode="add")
        with sender(address) as mine:
            mine.send("mine", b"allowed").result()
            foreign = refusal(lambda: mine.send("theirs", b"refused").result())
            with Consumer(address, topic="mine", group="g") as reader:
                unread = refusal(lambda: reader.poll(PATIENCE_S))
            admin.set_user("orders", {"topicPerms": ["mine=PUB", "theirs=PUB"]}, mode="alter")
            mine.send("theirs", b"allowed now").result()
            with connect_broker(address, name="orders", timeout_s=PATIENCE_S) as own:
                no_admin = refusal(lambda: own.create_topic("made", 1))
                secrets = refusal(lambda: asked(own).users())
            admin.remove_user("orders")
            gone = refusal(lambda: mine.send("mine", b"no more").result())
        secret = guarded.node.root / "ledgermq" / "access.json"

    assert isinstance(foreign, NoPermissionError)
    assert "orders" in str(foreign) and "PUB" in str(foreign) and "theirs" in str(foreign)
    assert isinstance(unread, NoPermissionError) and "SUB" in str(unread)
    assert isinstance(no_admin, NoPermissionError) and "access.admin_over_clients" in str(no_admin)
    assert isinstance(secrets, NoPermissionError)
    assert isinstance(gone, NoPermissionError)
    assert secret.stat().st_mode & 0o777 == 0o600
    log = guarded.node.log.read_text()
    assert "admin act who='operator (uid 0)'" in log or "admin act who='operator (uid" in log
    assert "act=acl_set on=user:orders outcome=done" in log
    assert "act=topic_create on=topic:made outcome=refused" in log


def test_each_user_writes_traces_and_reads_them_with_a_right_to_them(guarded: Guarded) -> None:
    address, public = guarded.keys("orders")
    with connect_broker(guarded.local, name="operator", timeout_s=PATIENCE_S) as broker:
        broker.create_topic("mine", 1)
        asked(broker).set_user(
            "orders", {"publicKeys": [public], "topicPerms": ["mine=PUB|SUB"]}, mode="add"
        )
    with TraceTopic(address) as traces:
        with Producer(address, tracing=Tracing(spans=False, topic=traces)) as producer:
            sent = producer.send("mine", b"x").result(PATIENCE_S)
        traces.flush(PATIENCE_S)
    with Queries(address) as own, Queries(guarded.local) as operators:
        message = wait_until(
            lambda: operators.message_by_id(sent.unique_id, topic="mine"), "dispatch"
        )
        wait_until(lambda: len(operators.life(message).events) == 3, "the trace")
        told = own.life(message)

    assert (traces.written, traces.dropped) == (1, 0)
    assert [event.stage for event in told.events] == ["born", "stored"]
    assert "SUB" in told.traces_fault and TRACE_TOPIC in told.traces_fault


def test_a_producer_cancels_timers_of_its_topics_and_sees_no_others(guarded: Guarded) -> None:
    mine, my_key = guarded.keys("orders")
    other, other_key = guarded.keys("billing")
    with connect_broker(guarded.local, name="operator", timeout_s=PATIENCE_S) as broker:
        for topic in ("mine", "theirs"):
            broker.create_topic(topic, 1)
        for user, key, perm in (("orders", my_key, "mine"), ("billing", other_key, "theirs")):
            asked(broker).set_user(
                user, {"publicKeys": [key], "topicPerms": [f"{perm}=PUB"]}, mode="add"
            )
    with sender(mine) as producer:
        timer = producer.send("mine", b"take me back", delay=3_600_000).result()
        foreign = refusal(lambda: producer.send("theirs", b"x", delay=3_600_000).result())
        with connect_broker(other, name="billing", timeout_s=PATIENCE_S) as theirs:
            refused = refusal(lambda: theirs.cancel_timer(timer.unique_id))
            assert theirs.timers().timers == []
        with connect_broker(mine, name="orders", timeout_s=PATIENCE_S) as own:
            assert [row.unique_id for row in own.timers().timers] == [timer.unique_id]
        with sender(other) as another:
            same = another.send(
                "theirs", b"of the same id", delay=3_600_000, unique_id=timer.unique_id
            ).result()
            producer.cancel(timer.unique_id)
            others = refusal(lambda: producer.cancel(timer.unique_id))
            another.cancel(same.unique_id)
        again = refusal(lambda: producer.cancel(timer.unique_id))

    assert isinstance(others, NoPermissionError) and "theirs" in str(others)
    assert isinstance(foreign, NoPermissionError) and "theirs" in str(foreign)
    assert isinstance(refused, NoPermissionError) and "mine" in str(refused)
    assert isinstance(again, MessageIllegalError)


def denial(address: str) -> LedgerError:
    """What a client is told that has more time than a test may take: it is told at once."""
    with connect_broker(address, name="stranger", timeout_s=10 * PATIENCE_S) as broker:
        return refusal(broker.topics)


def topics_of(broker: Broker) -> object:
    """What it may see; None while it is not let in."""
    try:
        return broker.topics()
    except ConnectDeniedError:
        return None


def test_who_is_not_let_in_is_told_at_once_and_why(guarded: Guarded) -> None:
    stranger, public = guarded.keys("stranger")
    plain = stranger.partition("?")[0]
    of_another_node = make_node_key(guarded.node.folder / "other.key")
    file = guarded.node.folder / "other.keys"
    make_client_keys(file, server=of_another_node)

    unknown, keyless, other = denial(stranger), denial(plain), denial(f"{plain}?keys={file}")
    both = denial(f"{plain},{stranger}")

    assert isinstance(unknown, ConnectDeniedError) and unknown.details["key"] == public
    assert isinstance(keyless, ConnectDeniedError) and "?keys=FILE" in str(keyless)
    assert isinstance(both, ConnectDeniedError)
    # That may be a node which begins, too.
    assert type(other) is UnreachableError and other.retriable
    assert other.details["server"] == of_another_node
    wait_until(lambda: guarded.node.logged("client refused: its key is no user's"), "a line")


def test_keys_that_a_node_does_not_ask_for_are_named(make_node: Callable[[], Node]) -> None:
    node, port = make_node(), free_port()
    node.configure(listen={"consume": f"tcp://127.0.0.1:{port}", "trusted_network": True})
    node.serve()
    file = node.folder / "client.keys"
    make_client_keys(file, server=make_node_key(node.folder / "node.key"))

    told = denial(f"tcp://127.0.0.1:{port}?keys={file}")

    assert isinstance(told, ConnectDeniedError) and "leave ?keys= out" in str(told)


def test_a_key_that_becomes_a_users_is_let_in_by_the_client_that_was_refused(
    guarded: Guarded,
) -> None:
    address, public = guarded.keys("orders")
    with connect_broker(address, name="orders", timeout_s=10 * PATIENCE_S) as broker:
        assert isinstance(refusal(broker.topics), ConnectDeniedError)
        guarded.command("acl", "add", "orders", "--public-key", public, "--topic", "a=PUB")
        wait_until(lambda: topics_of(broker) is not None, "the client is let in")


def test_the_address_of_producers_alone_names_the_one_to_use(guarded: Guarded) -> None:
    address, public = guarded.keys("orders")
    guarded.command("acl", "add", "orders", "--public-key", public, "--topic", "a=PUB|SUB")
    wrong = address.replace(str(guarded.consume), str(guarded.produce))

    told = [refusal(lambda: sender(wrong)), refusal(lambda: Consumer(wrong, topic="a").poll(1))]

    assert all("listen.consume" in str(error) for error in told), told


def test_commands_add_alter_check_and_remove_users(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(
        "globalWhiteRemoteAddresses: [10.0.0.1]\n"
        "accounts:\n"
        "  - {accessKey: RocketMQ, secretKey: 12345678, admin: false, defaultTopicPerm: DENY,\n"
        "     defaultGroupPerm: SUB, topicPerms: [topicA=DENY, topicB=PUB|SUB]}\n"
    )
    added = guarded.command("acl", "add", "orders", "--topic", "a=PUB", "--json")
    same = guarded.command("acl", "add", "orders", "--topic", "a=PUB", "--json")
    again = guarded.command("acl", "add", "orders")
    keyless = guarded.command("acl", "add", "keyless", "--topic", "a=PUB")
    known = guarded.command("acl", "alter", "keyless", "--addresses", "10.9.8.7")
    guarded.command("acl", "remove", "keyless")
    altered = guarded.command("acl", "alter", "orders", "--topic", "b=SUB", "--json")
    allowed = guarded.command("acl", "check", "orders", "--topic", "b", "--right", "SUB")
    denied = guarded.command("acl", "check", "orders", "--topic", "b", "--right", "PUB")
    taken = guarded.command("acl", "import", str(tmp_path / "plain_acl.yml"))
    removed = guarded.command("acl", "remove", "orders")
    listed = guarded.command("acl", "list", "--json")

    assert json.loads(added.stdout)["topics"] == ["a=PUB"]
    assert (same.returncode, same.stdout) == (0, added.stdout)
    assert again.returncode == 1 and "alter it" in again.stderr
    assert "no client is keyless yet: ledgermq acl alter keyless" in keyless.stdout
    assert known.returncode == 0 and "no client is" not in known.stdout
    assert json.loads(altered.stdout)["topics"] == ["a=PUB", "b=SUB"]
    assert (allowed.returncode, denied.returncode) == (0, 1), (allowed, denied)
    assert "globalWhiteRemoteAddresses" in taken.stdout
    assert removed.returncode == 0
    (row,) = json.loads(listed.stdout)["users"]
    assert (row["user"], row["has_secret_key"], row["default_group"]) == ("RocketMQ", True, "SUB")
    assert row["topics"] == ["topicA=DENY", "topicB=PUB|SUB"]
    assert "12345678" not in listed.stdout


def test_an_imported_user_is_what_the_file_says_and_who_is_left_over_is_named(
    guarded: Guarded, tmp_path: Path
) -> None:
    _, public = guarded.keys("shop-app")
    file = tmp_path / "plain_acl.yml"
    head = "accounts:\n- accessKey: shop-app\n  secretKey: s3cr3t-shop\n"

    def imported(text: str, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        file.write_text(text)
        done = guarded.command("acl", "import", str(file), "--json", *words)
        assert done.returncode == 0, done.stderr
        listed = json.loads(guarded.command("acl", "list", "--json").stdout)["users"]
        return json.loads(done.stdout), listed

    imported(
        head + "  admin: true\n  whiteRemoteAddress: 10.9.8.7\n  defaultTopicPerm: PUB|SUB\n"
        "  defaultGroupPerm: SUB\n  topicPerms: [orders=PUB]\n  groupPerms: [billing=SUB]\n"
    )
    guarded.command("acl", "alter", "shop-app", "--public-key", public)
    guarded.command("acl", "add", "ours", "--topic", "a=PUB")
    _, (_, tried) = imported(head, "--dry-run")
    told, (kept, taken_back) = imported(head)
    emptied, (_, emptied_row, _) = imported("accounts: [{accessKey: another}]")
    file.write_text(head)
    said = guarded.command("acl", "import", str(file)).stdout

    assert tried["admin"] and tried["topics"] == ["orders=PUB"]
    assert told["left_over"] == ["ours"] and kept["topics"] == ["a=PUB"]
    assert taken_back == {
        "user": "shop-app", "admin": False, "public_keys": [public], "has_secret_key": True,
        "addresses": "", "default_topic": "DENY", "default_group": "DENY", "topics": [],
        "groups": [], "cluster": False,
    }  # fmt: skip
    assert emptied["left_over"] == ["ours", "shop-app"] and emptied_row["has_secret_key"] is False
    assert "not in it, and as they were: another, ours (ledgermq acl remove USER)" in said


def quota_refusal(member: Member, body: bytes) -> QuotaError | None:
    """The error of who sends and does not wait for its quota; None if there is another one."""
    with producer(member, timeout_s=0.3) as hurried:
        error = refusal(lambda: hurried.send(TOPIC, body, queue_id=0).result())
    return error if isinstance(error, QuotaError) else None


def test_a_quota_holds_and_goes_to_the_next_leader(make_node: Callable[[], Node]) -> None:
    group = make_group(make_node, ack="majority-memory")
    leader = group.leader()
    body = b"x" * 10_000
    with connect_broker(group.addresses, name="operator", timeout_s=PATIENCE_S) as broker:
        asked(broker).set_quota(f"topic:{TOPIC}", produce_bytes=1)
    with producer(*group.members, timeout_s=PATIENCE_S) as patient:
        # The bucket begins empty or full by a byte: the first frame overdraws it for hours.
        patient.send(TOPIC, body, queue_id=0).result()
        first = wait_until(lambda: quota_refusal(leader, body), "a refusal")
        leader.kill()
        heir = group.leader(besides=leader)
        with producer(heir, timeout_s=PATIENCE_S) as another:
            another.send(TOPIC, body, queue_id=0).result()
        second = wait_until(lambda: quota_refusal(heir, body), "another refusal")
        with connect_broker(heir.address, name="operator", timeout_s=PATIENCE_S) as broker:
            quotas = asked(broker).quotas()
            asked(broker).remove_quota(f"topic:{TOPIC}")
        with producer(heir, timeout_s=PATIENCE_S) as free:
            free.send(TOPIC, body, queue_id=0).result()
        throttled = heir.node.status()["counters"]["writer"]["throttled"]

    for error in (first, second):
        assert f"topic:{TOPIC}" in str(error)
        assert error.details["retry_after_ms"] > 0
    assert [(row.owner, row.produce_bytes) for row in quotas] == [(f"topic:{TOPIC}", 1)]
    assert throttled > 0


def test_a_client_waits_as_long_as_its_quota_says(guarded: Guarded) -> None:
    with connect_broker(guarded.local, name="operator", timeout_s=PATIENCE_S) as broker:
        broker.create_topic("t", 1)
        asked(broker).set_quota("client:meter", produce_messages=20, consume_messages=20)
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with Producer(guarded.local, name="meter", options=options) as one:
        for _ in range(3):
            one.send_batch("t", [b"m"] * 20).result()
        resent = one._pipeline.refused_count
    with Consumer(guarded.local, topic="t", start="first", name="meter") as reader:
        bodies: list[bytes] = []

        def read() -> bool:
            bodies.extend(bytes(message.body) for message in reader.poll(1.0))
            return len(bodies) == 60

        wait_until(read, "all messages", PATIENCE_S)

    assert resent > 0
    assert bodies == [b"m"] * 60


def test_settings_of_access_and_quotas_hold_from_a_reload_on_for_who_is_connected(
    guarded: Guarded,
) -> None:
    address, public = guarded.keys("boss")
    with connect_broker(guarded.local, name="operator", timeout_s=PATIENCE_S) as broker:
        broker.create_topic("mine", 1)
        asked(broker).set_user("boss", {"publicKeys": [public], "admin": True}, mode="add")
    with connect_broker(address, name="boss", timeout_s=PATIENCE_S) as boss:

        def may_administrate() -> bool:
            try:
                boss.create_topic("made", 1)
            except NoPermissionError:
                return False
            return True

        before = may_administrate()
        access: dict[str, Any] = {"enabled": True, "admin_over_clients": True}
        guarded.reload(access=access)
        wait_until(may_administrate, "the right to administrate over tcp")
        quotas = {"topic_produce_messages": 1, "burst_ms": 1_000}
        guarded.reload(access={"enabled": True}, quotas=quotas)
        wait_until(lambda: not may_administrate(), "the end of that right")

    def is_throttled() -> bool:
        # A new one each time: one that was refused stays away for as long as it was told.
        with Producer(guarded.local, options=ProducerOptions(timeout_s=2.0)) as free:
            try:
                free.send_batch("mine", [b"x"] * 50).result()
            except QuotaError:
                return True
            return False

    wait_until(is_throttled, "a quota for all topics")
    guarded.reload(access={"enabled": True})
    wait_until(lambda: not is_throttled(), "the end of that quota")

    assert before is False
