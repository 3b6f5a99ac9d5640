"""Alerts of real nodes in a real Prometheus: the thing is done, and the alert is raised.

Times of the rules are divided, so that it takes minutes; what fired, and when, is printed, and
written to the file that LEDGERMQ_ALERTS_RESULT names.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions, TransactionalProducer
from ledgermq.client.admin.broker_admins import ArchiveAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.retries import DEAD
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import LedgerError, NoPermissionError
from ledgermq.process import control
from tests.certificates import make_certificate
from tests.observability_programs import load
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, TOPIC, Group, Member, free_port, make_group, producer
from tests.process.node_start import run_command
from tests.process.real_prometheus import RealPrometheus, prometheus_of
from tests.process.test_cluster_groups import RIGHTS_MAX_AGE_S, ClusterNode
from tests.process.test_scrub import FAST, Place, spoil
from tests.suite.patience import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("LEDGERMQ_ALERTS"), reason="LEDGERMQ_ALERTS=1 asks for it"
    ),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Debian's prometheus is not installed"
    ),
]

alert_rules: Any = load("alert_rules")

TRIED_S = 3.0
HASTE, HASTE_OF_AGES = 60, 20_000
FILE_SIZE = 2 * 1024 * 1024
NOT_DONE = {
    "ColdStorageAway": "needs pieces that were there, as test_cold_reads.py has them",
    "DiskFillsUp": "needs a disk that fills up within a day by the rate of a minute",
    "FeatureLevelWaits": "needs a group that was upgraded",
    "LeansOnWitness": "needs a witness without bodies, as test_witness_without_bodies.py has one",
    "MirrorBehind": "needs a second site",
    "PlainKernels": "needs an installation without compiled kernels",
    "PoisonMessages": "needs a message that the writer would refuse",
    "RequestsFailed": "needs a bug",
    "ScrapesFail": "needs a bug, or tens of thousands of groups",
    "SealingStandsStill": "needs pieces, as test_cold_retention.py has them",
    "TablesHeldUp": "needs damage where the tables stand, or a newer version",
    "VersionTooOld": "needs a newer version",
}
"""What is not done here, and why; ``promtool test rules`` has them all."""


OF_CLUSTER = ("ClusterHomeSilent", "ClusterRightsTooOld")
"""Alerts of groups of a cluster, which have a test of their own."""


class Stage:
    """Three nodes, and the Prometheus that scrapes them."""

    def __init__(
        self,
        group: Group,
        prometheus: RealPrometheus,
        addresses: dict[str, str],
        ports: dict[str, str],
    ) -> None:
        self.group = group
        self.prometheus = prometheus
        self.addresses = addresses
        self.ports = ports

    def leader(self) -> Member:
        """Who leads now."""
        return self.group.leader()

    def settle(self) -> None:
        """All run, one leads, and nobody says otherwise."""
        for member in self.group.members:
            if member not in self.group.up():
                member.start()
        self.leader()
        self.prometheus.wait_ends("NodeDown", "NoLeader", "NoMajority", "NodeNotReady")

    def send(self, body: bytes = b"body", count: int = 1) -> None:
        """Have so many messages acknowledged, whoever leads."""
        with producer(*self.group.members, timeout_s=PATIENCE_S) as one:
            one.send_batch(TOPIC, [body] * count).result()

    def edit(self, member: Member, *, replace: tuple[str, str] | None = None, add: str = "") -> str:
        """Change the settings of a member, and have them read; what they were."""
        before = member.node.config.read_text()
        text = before.replace(*replace) if replace else before
        member.node.config.write_text(text + add)
        member.reload()
        return before

    def put_back(self, member: Member, settings: str) -> None:
        """Have the settings that were there before."""
        member.node.config.write_text(settings)
        member.reload()


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Processes that do not go on inside."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def beside(act: Callable[[], None], threads: int = 1) -> Iterator[None]:
    """Do something again and again, meanwhile."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            with suppress(LedgerError):
                act()

    running = [threading.Thread(target=run) for _ in range(threads)]
    for one in running:
        one.start()
    try:
        yield
    finally:
        ended.set()
        for one in running:
            one.join()


def certificates_and_backups(stage: Stage) -> None:
    """n0 has a certificate for two days, and nobody has made a backup; then one gets old."""
    stage.prometheus.wait_fires("CertificateEnds", "CertificateEndsNow", "BackupMissing")
    node = stage.leader().node
    answer = run_command(
        "backup", "create", str(node.root), str(node.folder / "backups"),
        "--runtime-dir", str(node.runtime),
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    stage.prometheus.wait_ends("BackupMissing")
    stage.prometheus.wait_fires("BackupOld")
    answer = run_command(
        "backup", "stream", str(node.root), str(node.folder / "streams"),
        "--runtime-dir", str(node.runtime), "--once",
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    stage.prometheus.wait_fires("BackupStreamBehind")


def an_archive_stands_still(stage: Stage) -> None:
    with connect_broker(stage.group.addresses, name="test", timeout_s=PATIENCE_S) as broker:
        ArchiveAdmin(broker).commit("nightly", 0)
        stage.prometheus.wait_fires("ArchiveOld")
        ArchiveAdmin(broker).remove("nightly")


def a_group_falls_behind(stage: Stage) -> None:
    stage.send()
    with Consumer(stage.group.addresses, topic=TOPIC, group="billing") as consumer:
        wait_until(lambda: len(consumer.poll(1.0)), "a message")
        consumer.commit()
    with beside(lambda: stage.send(count=200)):
        stage.prometheus.wait_fires("ConsumerLagOld", "ConsumerLagGrows")


def a_message_dies(stage: Stage) -> None:
    with Consumer(stage.group.addresses, topic=TOPIC, group="shipping", start="first") as one:
        (message, *_) = wait_until(lambda: list(one.poll(1.0)), "a message")
        one.retry_later(message, delay_level=DEAD)
    stage.prometheus.wait_fires("DeadLetters")


def nobody_knows_how_a_transaction_ends(stage: Stage) -> None:
    with TransactionalProducer(stage.group.addresses, group="till") as one:
        begun = one.transaction()
        begun.send(TOPIC, b"half").result()
        stage.prometheus.wait_fires("TransactionsStuck")
        begun.rollback()


def clients_meet_quotas_and_rights(stage: Stage) -> None:
    leader = stage.leader()

    def try_to_send() -> None:
        with Producer(leader.address, options=ProducerOptions(timeout_s=0.3)) as one:
            one.send_batch(TOPIC, [b"x"] * 50).result()

    before = stage.edit(leader, add="\n[quotas]\ntopic_produce_messages = 1\n")
    with beside(try_to_send, threads=6):
        stage.prometheus.wait_fires("ClientsThrottled")
    stage.put_back(leader, before)
    stage.edit(leader, add="\n[access]\nenabled = true\n")

    def ask_without_a_user() -> None:
        address = f"tcp://{stage.ports[leader.name]}"
        with connect_broker([address], name="nobody", timeout_s=TRIED_S) as broker:
            for _ in range(100):
                with suppress(NoPermissionError):
                    broker.create_topic("nobodys", 1)

    with beside(ask_without_a_user):
        stage.prometheus.wait_fires("ClientsDenied")
    stage.put_back(leader, before)


def a_disk_is_full(stage: Stage) -> None:
    leader = stage.leader()
    before = stage.edit(leader, replace=('refuse_above = "100%"', 'refuse_above = "1%"'))
    stage.prometheus.wait_fires("DiskFull")
    stage.put_back(leader, before)
    stage.prometheus.wait_ends("DiskFull")


def a_process_dies_again_and_again(stage: Stage) -> None:
    node = stage.group.others(stage.leader())[0].node
    for _ in range(4):
        restarts = node.child("dispatcher")["restarts"]
        os.kill(node.pid("dispatcher"), signal.SIGKILL)
        wait_until(lambda: node.child("dispatcher")["restarts"] > restarts, "a restart")  # noqa: B023
    stage.prometheus.wait_fires("ProcessRestarts")


def elections_follow_one_another(stage: Stage) -> None:
    def hand_over() -> None:
        leader = stage.leader()
        control.ask(leader.node.runtime / "raft.sock", "resign", timeout_s=PATIENCE_S)

    with beside(hand_over):
        stage.prometheus.wait_fires("ElectionsTooMany")


def dispatch_stands_still(stage: Stage) -> None:
    """At a follower: a leader that is elected anew meanwhile would not answer."""
    follower = stage.group.others(stage.leader())[0]
    with stopped(follower.node.pid("dispatcher")):
        for _ in range(9):
            # Nothing that can be compressed.
            stage.send(os.urandom(1_000_000), 8)
        stage.prometheus.wait_fires("DispatchBehind")


def a_writer_hangs(stage: Stage) -> None:
    """A follower's: its disk counts as sick."""
    follower = stage.group.others(stage.leader())[0]
    with stopped(follower.node.pid("writer")):
        stage.send()
        stage.prometheus.wait_fires("DiskSick")
    stage.prometheus.wait_ends("DiskSick")


def a_put_hangs(stage: Stage) -> None:
    """The leader's writer is stopped again and again, until it is within a put."""

    def send() -> None:
        stage.send(os.urandom(100_000), 20)

    def is_stopped_within_one(node: Node) -> bool:
        with CursorPage.attach(node.runtime / "cursors") as page:
            return page.read_put_lock().holder != 0

    deadline = time.monotonic() + 2 * PATIENCE_S
    with beside(send, threads=2):
        while not stage.prometheus.has_fired("PutLockHeld"):
            assert time.monotonic() < deadline, stage.prometheus.fired()
            node = stage.leader().node
            with stopped(node.pid("writer")):
                if is_stopped_within_one(node):
                    stage.prometheus.wait_fires("PutLockHeld")


def disks_are_slow(stage: Stage) -> None:
    """Writers are stopped for moments: what they do meanwhile takes as long."""
    prometheus = stage.prometheus
    with beside(stage.send, threads=4):
        deadline = time.monotonic() + 4 * PATIENCE_S
        while not prometheus.has_fired("SyncSlow", "AcknowledgementSlow"):
            assert time.monotonic() < deadline, prometheus.fired()
            with stopped(*(member.node.pid("writer") for member in stage.group.members)):
                # How long a sync takes is what is measured: there is nothing to wait for.
                time.sleep(2.5)
            stage.send()


def members_are_lost(stage: Stage) -> None:
    """One after the other; the log of the last one is spoilt, which nobody can mend then."""
    leader = stage.leader()
    first, second = stage.group.others(leader)
    first.kill()
    stage.send(count=10)
    stage.prometheus.wait_firing("NodeDown", "MemberSilent", "MemberBehind")
    second.kill()
    stage.prometheus.wait_firing("NoMajority", "NodeNotReady", "NoLeader")
    # A byte of one of the first entries.
    spoil(Place(leader.log_files()[0], offset=0, size=0, index=0), 200)
    stage.prometheus.wait_firing("LogDamaged")
    stage.settle()
    stage.prometheus.wait_ends("LogDamaged")


def a_node_ends_again_and_again(stage: Stage) -> None:
    member = stage.group.others(stage.leader())[0]
    address = stage.addresses[member.name]
    deadline = time.monotonic() + 4 * PATIENCE_S
    while not stage.prometheus.has_fired("NodeRestarts"):
        assert time.monotonic() < deadline, stage.prometheus.fired()
        member.kill()
        stage.prometheus.wait_value(f'up{{instance="{address}"}}', 0)
        member.start()
        stage.prometheus.wait_value(f'up{{instance="{address}"}}', 1)


ACTS: Sequence[Callable[[Stage], None]] = (
    certificates_and_backups,
    an_archive_stands_still,
    a_group_falls_behind,
    a_message_dies,
    nobody_knows_how_a_transaction_ends,
    clients_meet_quotas_and_rights,
    a_disk_is_full,
    a_process_dies_again_and_again,
    dispatch_stands_still,
    a_writer_hangs,
    a_put_hangs,
    disks_are_slow,
    elections_follow_one_another,
    members_are_lost,
    a_node_ends_again_and_again,
)


def hastened_rules() -> str:
    """All of them, with shorter times."""
    pace = alert_rules.Pace(HASTE, HASTE_OF_AGES)
    return "\n".join(alert_rules.rules(pace, job="ledgermq", runbooks="alerts.md"))


def cluster_of_two(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], folder: Path, address: str
) -> tuple[ClusterNode, ClusterNode]:
    """Its home, and another group, whose node has its metrics at ``address``."""
    home = ClusterNode(make_node(), "orders-a", capsys)
    guest = ClusterNode(
        make_node(), "orders-b", capsys,
        listen={"http": address}, access={"cluster_rights_max_age_s": RIGHTS_MAX_AGE_S},
    )  # fmt: skip
    home.begin(folder / "root.json")
    guest.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", guest.address)
    return home, guest


@pytest.fixture
def stage(make_node: Callable[[], Node], tmp_path: Path) -> Iterator[Stage]:
    certificate, key = make_certificate(tmp_path)
    addresses = {f"n{number}": f"127.0.0.1:{free_port()}" for number in range(3)}
    ports = {f"n{number}": f"127.0.0.1:{free_port()}" for number in range(3)}
    schemes = dict.fromkeys(addresses.values(), "http") | {addresses["n0"]: "https"}

    def prepare(member: Member) -> None:
        text = member.node.config.read_text()
        listen = f'http = "{addresses[member.name]}"\nconsume = "tcp://{ports[member.name]}"'
        text = text.replace("[listen]", f"[listen]\n{listen}")
        text += (
            "\n[transactions]\ntransaction_timeout_ms = 50\n"
            "transaction_check_interval_ms = 500\ntransaction_check_max = 10000\n"
        )
        if member.name == "n0":
            text += f'\n[http]\ntls_certificate_file = "{certificate}"\ntls_key_file = "{key}"\n'
        member.node.config.write_text(text)

    group = make_group(
        make_node, ack="majority-fsync", sizes={**SIZES, "mapped_file_size_commit_log": FILE_SIZE},
        raft={"disk_sick_after_ms": 4_000}, scrub=FAST,
        supervision={"ready_within_ms": 2_000, "beat_timeout_ms": 300_000}, prepare=prepare,
    )  # fmt: skip
    with prometheus_of(tmp_path, schemes, hastened_rules()) as made:
        for member in group.members:
            member.node.wait_ready()
        stage = Stage(group, made, addresses, ports)
        stage.settle()
        yield stage


def test_each_alert_is_raised_when_its_thing_is_done(stage: Stage) -> None:
    begun_s = time.time()
    for act in ACTS:
        print(f"{time.time() - begun_s:6.1f} s  {act.__name__}", flush=True)
        act(stage)
        stage.settle()
    fired = stage.prometheus.fired()
    for one in fired:
        print(f"{one.at_s - begun_s:6.1f} s  {one.name}")
    result = os.environ.get("LEDGERMQ_ALERTS_RESULT")
    if result:
        rows = [{"alert": one.name, "after_s": round(one.at_s - begun_s, 1)} for one in fired]
        Path(result).write_text(json.dumps({"hasten": HASTE, "fired": rows}, indent=2) + "\n")

    everything = {alert.name for alert in alert_rules.ALERTS}
    elsewhere = {f"Ledgermq{name}" for name in (*NOT_DONE, *OF_CLUSTER)}
    assert {one.name for one in fired} >= everything - elsewhere


def test_a_silent_home_and_rights_that_are_too_old_are_told(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    home, guest = cluster_of_two(make_node, capsys, tmp_path, address)
    with prometheus_of(tmp_path, {address: "http"}, hastened_rules()) as prometheus:
        wait_until(lambda: "confirmedMs" in guest.kept(), "the home's word")
        home.node.end()
        guest.node.end()
        guest.keep_confirmed(before_s=RIGHTS_MAX_AGE_S + 1)
        guest.start_again()
        prometheus.wait_firing(*OF_CLUSTER)
        home.start_again()
        prometheus.wait_ends("ClusterRightsTooOld")
