"""A node that is made safe in one go, and each key, secret and certificate of it changed in use."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.core.keys import load_client_keys
from ledgermq.model.errors import LedgerError
from ledgermq.remoting.codes import RequestCode
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.node_start import run_command
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS
from tests.suite.patience import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl"),
]


def ledgermq(*words: object) -> str:
    """What the command prints, which has to succeed."""
    done = run_command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Safe:
    """A node as ``access init`` makes it, but for its ports."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.made = node.folder / "access"
        ledgermq(
            "access", "init", self.made, "--nodes", "n7=127.0.0.1", "--admin", "boss",
            "--user", "orders topic:orders=PUB|SUB group:g=SUB", "--user", "other",
            "--certificates", "--place", self.made / "n7",
        )  # fmt: skip
        produce, consume, remoting = (free_port() for _ in range(3))
        text = (self.made / "n7" / "access.toml").read_text()
        for before, port in ((10_921, produce), (10_922, consume), (10_911, remoting)):
            text = text.replace(str(before), str(port))
        node.configure(store={"path_root_dir": str(node.root)})
        lines = [
            line for line in node.config.read_text().splitlines() if "trusted_network" not in line
        ]
        own = "\n".join(lines).replace("[listen]", "")
        runtime = f'[listen]\nruntime_dir = "{node.runtime}"'
        own = "\n".join(line for line in own.splitlines() if "runtime_dir" not in line)
        node.config.write_text(f"{own}\n{text.replace('[listen]', runtime)}")
        node.serve()
        self.consume = f"tcp://127.0.0.1:{consume}"
        self.remoting = f"127.0.0.1:{remoting}"
        self.local = ("--address", f"ipc://{node.runtime}")

    def keys(self, name: str) -> str:
        """An address with the keys in a file."""
        return f"{self.consume}?keys={self.made / 'clients' / name}.keys"

    def secret(self, name: str) -> str:
        return (self.made / "clients" / f"{name}.secret").read_text().strip()


@contextmanager
def going_on(act: Callable[[], object]) -> Iterator[list[int]]:
    """``act`` again and again, which must not fail; how often, in a list of one."""
    count, failed, is_over = [0], list[BaseException](), threading.Event()

    def run() -> None:
        try:
            while not is_over.is_set():
                act()
                count[0] += 1
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        is_over.set()
        thread.join(PATIENCE_S)
    assert not failed, failed


@pytest.fixture
def safe(make_node: Callable[[], Node]) -> Iterator[Safe]:
    made = Safe(make_node())
    ledgermq("access", "apply", made.made, *made.local)
    yield made
    assert made.node.stop() == 0


def producer(address: str) -> Producer:
    return Producer(address, options=ProducerOptions(timeout_s=PATIENCE_S))


def test_users_that_are_applied_again_are_what_the_folder_says(safe: Safe) -> None:
    def users() -> list[dict[str, object]]:
        listed: list[dict[str, object]] = json.loads(
            ledgermq("acl", "list", *safe.local, "--json")
        )["users"]
        return listed

    before = users()
    ledgermq(
        "acl", "alter", "orders", "--admin", "yes", "--addresses", "10.9.8.7", "--default-topic",
        "PUB|SUB", "--topic", "payments=PUB", *safe.local,
    )  # fmt: skip
    ledgermq("acl", "add", "later", "--topic", "orders=SUB", *safe.local)
    altered = users()
    told = json.loads(ledgermq("access", "apply", safe.made, *safe.local, "--json"))
    ledgermq("acl", "remove", "later", *safe.local)

    assert altered != before
    assert told == {"users": ["boss", "orders", "other"], "left_over": ["later"]}
    assert users() == before


def test_a_clients_key_is_changed_while_it_sends_and_the_old_one_is_nothing_then(
    safe: Safe,
) -> None:
    old = load_client_keys(str(safe.made / "clients" / "orders.keys"))
    new = json.loads(
        ledgermq("acl", "keys", "--client", safe.made / "clients" / "orders-2.keys",
                 "--server", old.server.decode(), "--json")
    )["public"]  # fmt: skip
    with (
        producer(safe.keys("orders")) as before,
        going_on(lambda: before.send("orders", b"old key").result()) as sent,
    ):
        ledgermq("acl", "alter", "orders", "--public-key", old.public.decode(),
                 "--public-key", new, *safe.local)  # fmt: skip
        with producer(safe.keys("orders-2")) as after:
            after.send("orders", b"new key").result()
            wait_until(lambda: sent[0] > 0, "the old key goes on")
    with producer(safe.keys("orders")) as before:
        before.send("orders", b"still").result()
        ledgermq("acl", "alter", "orders", "--public-key", new, *safe.local)
        with pytest.raises(LedgerError, match="none of the node"):
            before.send("orders", b"no more").result()


def sending(client: RemotingClient) -> Callable[[], None]:
    values = ("p", "orders", "TBW102", 4, 0, 0, NOW_MS, 0, "", 0, "false")
    fields = dict(zip("abcdefghijk", values, strict=True))

    def send() -> None:
        reply = client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"signed")
        assert reply.code == 0, reply

    return send


def test_a_certificate_and_the_sealing_key_are_changed_while_a_signing_client_sends(
    safe: Safe,
) -> None:
    first = ssl.create_default_context(cafile=str(safe.made / "certificates.pem"))
    signs = ("orders", safe.secret("orders"))
    client = RemotingClient(safe.remoting, signs=signs, tls=first)
    place = safe.made / "n7"
    with going_on(sending(client)) as sent:
        again = safe.node.folder / "again"
        ledgermq("access", "init", again, "--nodes", "n7=127.0.0.1", "--admin", "x",
                 "--certificates")  # fmt: skip
        for name in ("tls.key", "tls.pem"):
            shutil.copy(again / "n7" / name, place / name)
        safe.node.signal(signal.SIGHUP)
        second = ssl.create_default_context(cafile=str(again / "certificates.pem"))

        def is_renewed() -> bool:
            try:
                late = RemotingClient(safe.remoting, signs=signs, tls=second)
            except ssl.SSLError:
                return False
            sending(late)()
            late.close()
            return True

        wait_until(is_renewed, "new connections get the new certificate")
        ledgermq("acl", "keys", "--users", safe.node.root / "ledgermq" / "keys" / "users.key")
        ledgermq("acl", "alter", "orders", "--topic", "more=PUB", *safe.local)
        count = sent[0]
        wait_until(lambda: sent[0] > count, "the old connection goes on")
    client.close()


def test_a_secret_is_changed_by_a_second_user_while_clients_sign(safe: Safe) -> None:
    tls = ssl.create_default_context(cafile=str(safe.made / "certificates.pem"))
    file = safe.node.folder / "orders-2.secret"
    file.write_text("87654321abcdefgh\n")
    file.chmod(0o600)
    before = RemotingClient(safe.remoting, signs=("orders", safe.secret("orders")), tls=tls)
    with going_on(sending(before)) as sent:
        ledgermq("acl", "add", "orders-2", "--secret-key-file", file,
                 "--topic", "orders=PUB|SUB", "--group", "g=SUB", *safe.local)  # fmt: skip
        after = RemotingClient(safe.remoting, signs=("orders-2", file.read_text().strip()), tls=tls)
        sending(after)()
        count = sent[0]
        wait_until(lambda: sent[0] > count, "the old secret goes on")
    with going_on(sending(after)) as sent:
        ledgermq("acl", "remove", "orders", *safe.local)
        with pytest.raises(AssertionError, match="orders"):
            sending(before)()
        count = sent[0]
        wait_until(lambda: sent[0] > count, "the new one goes on")
    before.close()
    after.close()


def test_the_nodes_own_key_is_changed_with_a_restart_and_clients_with_the_new_line_come_in(
    safe: Safe,
) -> None:
    key, client = safe.made / "n7" / "clients.key", safe.made / "clients" / "orders.keys"
    old = load_client_keys(str(client)).server.decode()
    with producer(safe.keys("orders")) as before:
        first = before.send("orders", b"old key").result()
    stale = safe.made / "clients" / "stale.keys"
    shutil.copy(client, stale)
    key.unlink()
    new = json.loads(ledgermq("acl", "keys", "--node", key, "--json"))["public"]
    assert client.read_text().count(old) == 1
    client.write_text(client.read_text().replace(old, new))
    assert safe.node.stop() == 0
    safe.node.serve()
    with producer(safe.keys("orders")) as after:
        second = after.send("orders", b"new key", queue_id=first.queue_id).result()
    hurried = ProducerOptions(timeout_s=2.0)
    with pytest.raises(LedgerError), Producer(safe.keys("stale"), options=hurried) as late:
        late.send("orders", b"old line").result()

    assert second.queue_offset == first.queue_offset + 1


def test_the_admin_is_one_and_a_user_without_rights_has_none(safe: Safe) -> None:
    listed = json.loads(ledgermq("acl", "list", "--json", *safe.local))["users"]
    with producer(safe.keys("boss")) as boss:
        boss.send("orders", b"may").result()
    with producer(safe.keys("other")) as other, pytest.raises(LedgerError, match="PUB"):
        other.send("orders", b"may not").result()
    modes = {path.stat().st_mode & 0o77 for path in Path(safe.made).rglob("*.keys")}

    assert {row["user"]: row["admin"] for row in listed} == {
        "boss": True, "orders": False, "other": False,
    }  # fmt: skip
    assert modes == {0}
