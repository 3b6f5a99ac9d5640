"""The real RocketMQ is followed while it runs, and replaced when it is gone."""

from __future__ import annotations

import json
import random
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledgermq.cli.main import main
from ledgermq.formats.config_json import decode_document
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.understudy.understudy_status import UnderstudyStatus, read_status
from tests.certificates import make_certificate
from tests.compat.other_clients import NotToBeHadError
from tests.compat.rocket_group import RocketGroup
from tests.compat.rocketmq5 import fetch, rocketmq5_serving
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS
from tests.process.test_delivery import DAY_MS, now_ms, received
from tests.process.test_state_log import broker_of
from tests.process.understudy_process import UnderstudyProcess, understudy
from tests.suite.patience import PATIENCE_S
from tests.unit.understudy.test_received_log import log_bytes
from tests.unit.understudy.test_understudy import queue_bytes

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

SIZES = {
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 4_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
    "diskMaxUsedSpaceRatio": 95,
}
TOPIC, GROUP, QUEUES = "followed", "followers", 4
KILLS = 12
PAUSE_S = 0.005
SEED = 47


class Stored(NamedTuple):
    """A message that the master has answered: where it lies, and what it said of its slave."""

    queue_id: int
    offset: int
    body: bytes
    code: int


class Load(threading.Thread):
    """Sends one message after the other.

    Attributes:
        stored: what was answered.
    """

    def __init__(
        self,
        address: str,
        *,
        seed: int = SEED,
        sizes: Sequence[int] = (30, 900, 30_000),
        **access: Any,
    ) -> None:
        super().__init__(daemon=True)
        self._sizes = sizes
        self.stored: list[Stored] = []
        self._chance = random.Random(seed)
        self._client = RemotingClient(address, **access)
        self._ends = threading.Event()

    def run(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            while not self._ends.is_set():
                self.stored.append(self.send())
                self.pause()
        self._client.close()

    def pause(self) -> None:
        """Without a slave a broker takes a gigabyte a minute."""
        self._ends.wait(PAUSE_S)

    def send(self, properties: str = "") -> Stored:
        """Send one, and wait for its answer."""
        number = len(self.stored)
        body = b"%d " % number + self._chance.randbytes(self._chance.choice(self._sizes))
        values = ("load", TOPIC, "TBW102", QUEUES, number % QUEUES, 0, NOW_MS, 0)
        fields = dict(zip("abcdefghijk", (*values, properties, 0, "false"), strict=True))
        reply = self._client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
        offset = int(reply.fields.get("queueOffset", -1))
        return Stored(number % QUEUES, offset, body, reply.code)

    @property
    def codes(self) -> list[int]:
        """What was answered to each."""
        return [one.code for one in self.stored]

    def end(self) -> None:
        self._ends.set()
        self.join()


@contextmanager
def loaded(address: str, **access: Any) -> Iterator[Load]:
    """Load until the end of the block, with the ``access`` of a ``RemotingClient``."""
    load = Load(address, **access)
    load.start()
    try:
        yield load
    finally:
        load.end()


def status_of(process: UnderstudyProcess) -> UnderstudyStatus:
    found = read_status(process.folder)
    return found or UnderstudyStatus(state="", since_ms=0, told_at_ms=0)


def wait_level(process: UnderstudyProcess, master: Path) -> None:
    """Wait until the folder has all that the master has, tables of then among it."""
    end = len(log_bytes_of_master(master))

    def is_level() -> bool:
        status = status_of(process)
        return (status.durable, status.dispatched, status.tables_position) == (end,) * 3

    wait_until(is_level, "the understudy is level", PATIENCE_S)


def log_bytes_of_master(root: Path) -> bytes:
    """All bytes of its log up to the last that is not zero; records end with none here."""
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


def compare(process: UnderstudyProcess, master: Path) -> None:
    """Log and queues are the master's, byte for byte."""
    assert log_bytes(process.folder) == log_bytes_of_master(master)
    ours, theirs = queue_bytes(process.folder), queue_bytes(master)
    # RocketMQ makes the next file of a queue ahead.
    assert {name for name in theirs if any(theirs[name])} == set(ours)
    for name, content in ours.items():
        assert content == theirs[name], name


def acknowledged(load: Load) -> dict[tuple[int, int], bytes]:
    return {(one.queue_id, one.offset): one.body for one in load.stored if one.offset >= 0}


def commit(client: RemotingClient, queue_id: int, offset: int) -> None:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": queue_id,
        "commitOffset": offset,
    }
    reply = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert reply.code == ResponseCode.SUCCESS, reply.remark


def offsets_in(root: Path) -> object:
    path = root / "config" / "consumerOffset.json"
    if not path.exists():
        return None
    table = decode_document(path.read_bytes())["offsetTable"]
    assert isinstance(table, dict)
    return table.get(f"{TOPIC}@{GROUP}")


def consumed(address: str) -> dict[int, str | None]:
    """How far the group is in each queue, as the port tells."""
    client = RemotingClient(address)
    asked = {"consumerGroup": GROUP, "topic": TOPIC}
    found = {
        queue_id: client.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, {**asked, "queueId": queue_id}
        ).fields.get("offset")
        for queue_id in range(QUEUES)
    }
    client.close()
    return found


def promoted(process: UnderstudyProcess, node: Node, port: int) -> int:
    """Make a node's store of the folder, with settings for ``node``; the exit status."""
    words = ["--folder", str(process.folder), "--settings", str(node.config)]
    words += ["--remoting", f"127.0.0.1:{port}", "--runtime-dir", str(node.runtime)]
    return main(["understudy", "promote", *words, "--json"])


def test_a_master_that_was_put_back_to_an_older_copy_and_went_on_is_refused(
    tmp_path: Path,
) -> None:
    """RocketMQ 4.9.4."""
    words = [word for key, value in SIZES.items() for word in ("--set", f"{key}={value}")]
    process = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    store, copy = tmp_path / "n0" / "store", tmp_path / "copy"
    with ExitStack() as ends:
        rocketmq = RocketGroup(tmp_path, "--plain", *words, names=("n0",))
        ends.callback(rocketmq.end)
        ends.callback(process.kill)
        rocketmq.start()
        address = rocketmq.places["n0"]
        host, _, listens = address.rpartition(":")
        with loaded(address) as load:
            wait_until(lambda: len(load.stored) > 20, "messages")
        rocketmq.stop()
        shutil.copytree(store, copy)
        rocketmq.start()
        process.add(f"{host}:{int(listens) + 1}", address)
        process.start()
        with loaded(address) as load:
            wait_until(lambda: len(load.stored) > 20, "messages that are lost later")
        wait_level(process, store)
        before = log_bytes(process.folder)
        assert before == log_bytes_of_master(store)
        rocketmq.stop()
        shutil.rmtree(store)
        copy.rename(store)
        # As long as it does not answer it is away, and then its log is shorter, or another one.
        rocketmq.start()
        with loaded(address) as load:
            wait_until(lambda: process.has_ended, "the understudy ends by itself")

        assert (process.status, process.show()["state"]) == (1, "refused")
    assert log_bytes(process.folder) == before


def test_a_master_that_waits_for_its_slave_is_followed_through_kills_and_replaced(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """RocketMQ 4.9.4."""
    port = free_port()
    rows = {**SIZES, "brokerRole": "SYNC_MASTER"}
    words = [word for key, value in rows.items() for word in ("--set", f"{key}={value}")]
    process = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    chance = random.Random(SEED)
    with ExitStack() as ends:
        rocketmq = RocketGroup(tmp_path, "--plain", *words, names=("n0",))
        ends.callback(rocketmq.end)
        ends.callback(process.kill)
        rocketmq.start()
        address, store = rocketmq.places["n0"], tmp_path / "n0" / "store"
        host, _, listens = address.rpartition(":")
        client = RemotingClient(address)
        ends.callback(client.close)
        with loaded(address) as load:
            wait_until(lambda: len(load.stored) > 50, "messages before it is followed")
            # Nobody is there for whom the master could wait.
            assert {one.code for one in load.stored} == {ResponseCode.SLAVE_NOT_AVAILABLE}
            # Whatever broker.conf says.
            process.add(f"{host}:{int(listens) + 1}", address)
            process.start()
            wait_until(lambda: load.stored[-1].code == ResponseCode.SUCCESS, "it is waited for")
            begun = len(load.stored)
            wait_until(lambda: len(load.stored) > begun + 50, "messages that are waited for")
            assert {one.code for one in load.stored[begun:]} == {ResponseCode.SUCCESS}
            for _ in range(KILLS):
                before = len(load.stored) + chance.randrange(40)
                wait_until(lambda before=before: len(load.stored) > before, "messages")
                process.kill()
                process.start()
            wait_until(lambda: load.stored[-1].code == ResponseCode.SUCCESS, "it is back")
        for queue_id in range(QUEUES):
            commit(client, queue_id, 7 + queue_id)
        wait_level(process, store)
        compare(process, store)
        wanted = {str(queue_id): 7 + queue_id for queue_id in range(QUEUES)}
        wait_until(lambda: offsets_in(process.folder) == wanted, "offsets are followed")
        rocketmq.end()
        wait_until(lambda: process.show()["state"] == "away", "the master is away")
        assert process.stop() == 0
    node = make_node()
    status = promoted(process, node, port)
    facts = json.loads(capsys.readouterr().out)

    assert (status, facts["behind_the_master"]) == (0, 0)
    assert main(["store", "check", str(process.folder)]) == 0
    node.serve()
    expected = acknowledged(load)
    found = received(node.address, TOPIC, len(expected))
    kept = consumed(f"127.0.0.1:{port}")
    assert {(one.queue_id, one.queue_offset): bytes(one.body) for one in found} == expected
    assert kept == {queue_id: str(7 + queue_id) for queue_id in range(QUEUES)}
    assert node.stop() == 0


def test_a_master_of_rocketmq_5_is_followed_with_its_timers_and_replaced(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    """RocketMQ 5.5.1."""
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    store, ha, port = tmp_path / "store", free_port(), free_port()
    process = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    with ExitStack() as ends:
        ends.callback(process.kill)
        # It counts itself: with one replica in sync, the default, a SYNC_MASTER waits for nobody.
        waits = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 500}
        rows = {**SIZES, "haListenPort": ha, **waits}
        with rocketmq5_serving(store, tmp_path, **rows) as address:
            with loaded(address) as load:
                wait_until(lambda: len(load.stored) > 5, "messages before it is followed")
                assert ResponseCode.SUCCESS not in {one.code for one in load.stored}
                process.add(f"127.0.0.1:{ha}", address)
                process.start()
                wait_until(lambda: load.stored[-1].code == ResponseCode.SUCCESS, "it is waited for")
                begun = len(load.stored)
                wait_until(lambda: len(load.stored) > begun + 30, "messages that are waited for")
                assert {one.code for one in load.stored[begun:]} == {ResponseCode.SUCCESS}
            sender = Load(address)
            due = now_ms() + DAY_MS
            timer = sender.send(f"TIMER_DELIVER_MS\x01{due}\x02UNIQ_KEY\x01{'7' * 32}\x02")
            sender._client.close()
            assert timer.code == ResponseCode.SUCCESS
            wait_level(process, store)
            compare(process, store)
            assert (process.folder / "config" / "timercheck").stat().st_size == 4_096
        wait_until(lambda: process.show()["state"] == "away", "the master is away")
        assert process.stop() == 0
    node = make_node()

    assert promoted(process, node, port) == 0
    assert main(["store", "check", str(process.folder)]) == 0
    node.serve()
    expected = acknowledged(load)
    found = received(node.address, TOPIC, len(expected))
    assert {(one.queue_id, one.queue_offset): bytes(one.body) for one in found} == expected
    with broker_of(node.address) as broker:
        wait_until(lambda: broker.timers().waiting == 1, "the timer waits here", PATIENCE_S)
    assert node.stop() == 0


PROVIDER = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
BOSS, FOLLOWER = ("foremost", "12345678"), ("follower", "00654321")
CREATE_USER = 3_001


class Closed(NamedTuple):
    """A master that lets in none but its accounts, and by TLS alone."""

    folder: Path
    certificate: Path

    @property
    def access(self) -> dict[str, Any]:
        """With which its admin comes."""
        return {"signs": BOSS, "tls": ssl.create_default_context(cafile=str(self.certificate))}

    def follow_by(self, name: str, secret: str) -> UnderstudyProcess:
        """An understudy that comes with an account's key."""
        key_file = self.folder / f"{name}.yml"
        key_file.write_text(f"accessKey: {name}\nsecretKey: {secret}\n")
        key_file.chmod(0o600)
        words = ["--access-key-file", key_file, "--ca-file", self.certificate]
        return UnderstudyProcess(self.folder / name, self.folder / f"{name}-said", *words)


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Closed:
    """Has each broker that is started in the test take no connection without TLS."""
    certificate, key = make_certificate(tmp_path)
    options = {
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.config.file": tmp_path / "none",
        "tls.server.certPath": certificate,
        "tls.server.keyPath": key,
        # Of 4.9.4, below ROCKETMQ_HOME.
        "rocketmq.acl.plain.file": f"{'../' * 20}{tmp_path}/plain_acl.yml",
    }
    words = [f"-D{name}={value}" for name, value in options.items()]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(words))
    rows = [
        f"  - {{accessKey: {name}, secretKey: '{secret}', admin: {admin}}}"
        for (name, secret), admin in ((BOSS, "true"), (FOLLOWER, "false"))
    ]
    (tmp_path / "plain_acl.yml").write_text("\n".join(["accounts:", *rows, ""]))
    return Closed(tmp_path, certificate)


def check_followed(closed: Closed, ha: str, address: str, store: Path) -> None:
    """Who has the key of an account follows, and nobody else."""
    stranger = closed.follow_by(FOLLOWER[0] + "2", "wrong")
    refused = understudy(*stranger.add_words(ha, address))
    process = closed.follow_by(*FOLLOWER)
    with loaded(address, **closed.access) as load:
        process.add(ha, address)
        process.start()
        try:
            wait_until(lambda: load.codes[-1:] == [ResponseCode.SUCCESS], "it is waited for")
            begun = len(load.stored)
            wait_until(lambda: len(load.stored) > begun + 30, "messages that are waited for")
            load.end()
            wait_level(process, store)
            compare(process, store)
            shown = process.show()
            assert process.stop() == 0
        finally:
            process.kill()

    assert (refused.returncode, "the master refuses a request" in refused.stderr) == (1, True)
    assert (shown["state"], shown["missing"], shown["trouble"]) == ("following", "", "")
    secrets = [secret for _, secret in (BOSS, FOLLOWER)]
    for path in [closed.folder / FOLLOWER[0], process.said]:
        for file in path.rglob("*") if path.is_dir() else [path]:
            if file.is_file() and file.parent.name != "commitlog":
                assert not any(secret.encode() in file.read_bytes() for secret in secrets), file


def test_a_master_with_accounts_and_tls_is_followed_by_who_has_a_key(
    tmp_path: Path, closed: Closed
) -> None:
    """RocketMQ 4.9.4."""
    rows = {**SIZES, "brokerRole": "SYNC_MASTER", "aclEnable": "true"}
    words = [word for key, value in rows.items() for word in ("--set", f"{key}={value}")]
    rocketmq = RocketGroup(tmp_path, "--plain", *words, names=("n0",))
    with ExitStack() as ends:
        ends.callback(rocketmq.end)
        rocketmq.start()
        address = rocketmq.places["n0"]
        host, _, listens = address.rpartition(":")
        check_followed(closed, f"{host}:{int(listens) + 1}", address, tmp_path / "n0" / "store")


def test_a_master_of_rocketmq_5_with_accounts_and_tls_is_followed_by_who_has_a_key(
    tmp_path: Path, closed: Closed
) -> None:
    """RocketMQ 5.5.1, without authorization: its own library for that is not to be had."""
    try:
        fetch()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    store, ha = tmp_path / "store", free_port()
    rows = {
        **SIZES,
        "haListenPort": ha,
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "slaveTimeout": 500,
        "authenticationEnabled": "true",
        "authenticationMetadataProvider": PROVIDER,
        "initAuthenticationUser": json.dumps(
            dict(zip(("username", "password"), BOSS, strict=True))
        ),
        "innerClientAuthenticationCredentials": json.dumps(
            dict(zip(("accessKey", "secretKey"), BOSS, strict=True))
        ),
    }
    with rocketmq5_serving(store, tmp_path, **rows) as address:
        admin = RemotingClient(address, **closed.access)
        name, secret = FOLLOWER
        user = {"username": name, "password": secret, "userType": "Normal"}
        made = admin.ask(CREATE_USER, {"username": name}, json.dumps(user).encode())
        assert made.code == ResponseCode.SUCCESS, made.remark
        admin.close()
        check_followed(closed, f"127.0.0.1:{ha}", address, store)
