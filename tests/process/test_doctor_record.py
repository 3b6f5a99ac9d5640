"""Records of real nodes: of one that serves, that hangs, or is dead; one that is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.doctor.recording.far_nodes import files_of
from ledgermq.doctor.recording.stack_samples import find_program
from ledgermq.model.exit_status import EXIT_INTERRUPTED
from ledgermq.sessions.keys.client_keys import make_node_key
from tests.certificates import make_certificate
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_nodes import COMMAND, Member, free_port, make_group, producer
from tests.process.node_start import run_command
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CHILDREN = ("raft", "writer", "dispatcher", "broker")
QUICK = ("--only", "limits,settings,store")
"""Parts of the examination that do not wait for anything."""

TOKEN = "a-token-that-nobody-is-to-read-0123456789"
SECRET_KEY = "a-secret-key-of-a-user-0123456789"
PUBLIC = re.compile(r"public|CERTIFICATE|BEGIN|END|PRIVATE")


class Archive:
    """What an archive has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with tarfile.open(path) as archive:
            self.members = archive.getmembers()
            self.content = {
                one.name.partition("/")[2]: archive.extractfile(one).read()  # type: ignore[union-attr]
                for one in self.members
            }

    def text(self, name: str) -> str:
        return self.content[name].decode()

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text(name).splitlines()]

    def section(self, title: str) -> str:
        """A part of the summary."""
        return self.text("summary.txt").partition(f"{title}\n")[2].partition("\n\n")[0]


def words_of(node: Node, seconds: int, *more: str) -> list[str]:
    out = node.folder / "out"
    out.mkdir(exist_ok=True)
    command = ["doctor", "--config", str(node.config), "--record", str(seconds)]
    return [*command, "--output", str(out), *QUICK, *more]


def record(node: Node, seconds: int = 3, *more: str) -> Archive:
    done = run_command(*words_of(node, seconds, "--json", *more))
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["interrupted"] == ""
    return Archive(Path(told["archive"]))


def left_in(node: Node) -> list[str]:
    return sorted(path.name for path in (node.folder / "out").iterdir())


def stacks_of(archive: Archive, role: str) -> str:
    return "".join(
        content.decode()
        for name, content in archive.content.items()
        if re.fullmatch(rf"stacks/{role}-\d+\.txt", name)
    )


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    made.configure(store={"mapped_file_size_commit_log": 262_144})
    made.serve()
    return made


@pytest.mark.long
def test_a_record_has_what_somebody_far_away_asks_for(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    gone = f"tcp://127.0.0.1:{free_port()}"
    archive = record(node, 6, "--address", f"{address},{gone}")
    again = record(node, 1)

    assert stat.S_IMODE(archive.path.stat().st_mode) == 0o600
    assert re.fullmatch(r"ledgermq-broker-a-n7-\d{8}T\d{6}Z\.tar\.gz", archive.path.name)
    assert left_in(node) == sorted({archive.path.name, again.path.name})
    assert {one.mode for one in archive.members} == {0o600}
    assert [one.name.partition("/")[2] for one in archive.members[:2]] == ["README", "summary.txt"]
    readme = archive.text("README").splitlines()
    assert [name for name in archive.content if name not in readme] == []
    pages = archive.lines("samples/page.jsonl")
    assert len(pages) >= 2
    assert pages[0]["raft"]["role"] == "leader"
    assert pages[-1]["counters"]["broker"]["calls"] > pages[0]["counters"]["broker"]["calls"]
    assert {line["role"] for line in archive.lines("samples/processes.jsonl")} == {
        "supervisor", *CHILDREN,
    }  # fmt: skip
    assert archive.lines("samples/host.jsonl")[0]["memory"]["MemTotal"] > 0
    report = archive.lines(files_of([address])[0])
    assert "n7" in [line["node"]["self_id"] for line in report if "node" in line]
    assert "did not answer" in archive.section("WHAT STANDS OUT")
    assert json.loads(archive.text("status.json"))["state"] == "ready"
    assert "node is ready" in archive.text("log.txt")
    assert str(node.root) in archive.text("settings-in-force.toml")
    assert "ledgermq/term" in archive.text("store.txt")
    assert {one["check"] for one in json.loads(archive.text("findings.json"))} >= {"store.lock"}


@pytest.mark.long
@pytest.mark.skipif(find_program() is None, reason="py-spy is not installed")
def test_a_node_that_hangs_is_recorded_with_the_places_where_it_does(node: Node) -> None:
    pids = node.pids()
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    try:
        archive = record(node, 2)
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)

    standing_out = archive.section("WHAT STANDS OUT")
    missing = archive.section("NOT IN THIS RECORD")
    assert "the node does not run, or does not answer" in standing_out
    for role, pid in pids.items():
        assert f"{role} (pid {pid}) was stopped by a signal" in standing_out
    assert "status.json" in missing
    assert "loop.py" in stacks_of(archive, "writer")
    assert "supervisor.py" in stacks_of(archive, "supervisor")
    states = {line["state"] for line in archive.lines("samples/threads.jsonl")}
    assert states == {"T"}


@pytest.mark.skipif(find_program() is None, reason="py-spy is not installed")
def test_a_process_that_hangs_stands_out_beside_those_that_turn(node: Node) -> None:
    pid = node.pid("dispatcher")
    os.kill(pid, signal.SIGSTOP)
    try:
        archive = record(node, 4)
    finally:
        os.kill(pid, signal.SIGCONT)

    standing_out = archive.section("WHAT STANDS OUT")
    assert f"dispatcher (pid {pid}) was stopped by a signal" in standing_out
    assert re.search(r"dispatcher gave no sign of life for \d", standing_out)
    assert "broker (pid" not in standing_out
    assert json.loads(archive.text("status.json"))["node"]["self_id"] == "n7"
    assert "dispatcher.py" in stacks_of(archive, "dispatcher")


def test_a_dead_node_is_recorded_by_what_it_left(node: Node) -> None:
    node.end()
    archive = record(node, 1)
    never = record_of_nothing(node)

    missing = archive.section("NOT IN THIS RECORD")
    assert "no node is running there" in archive.section("WHAT STANDS OUT")
    assert "status.json: no node is running there" in missing
    assert "no node runs whose log file is known" in missing
    assert archive.lines("samples/page.jsonl")[0]["raft"]["role"] == "leader"
    assert archive.text("settings.toml")
    assert "abort" in archive.text("store.txt")
    findings = {one["check"]: one for one in json.loads(archive.text("findings.json"))}
    assert findings["store.last-stop"]["verdict"] == "WARN"
    assert "the settings cannot be used" in never.text("summary.txt")


def record_of_nothing(node: Node) -> Archive:
    """Of a node whose settings nobody can use."""
    node.config.write_text("[node]\nself_id = 7\n")
    return record(node, 1)


def test_an_interrupted_record_has_what_there_was(node: Node) -> None:
    process = subprocess.Popen(
        [*COMMAND, *words_of(node, 600)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )  # fmt: skip
    try:
        wait_until(
            lambda: any(
                path.stat().st_size for path in (node.folder / "out").rglob("store.txt")
            ),
            "the last thing that is looked at once",
        )  # fmt: skip
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()

    archive = Archive(Path(output.split()[-1]))
    assert (process.returncode, error) == (EXIT_INTERRUPTED, "")
    assert left_in(node) == [archive.path.name]
    assert "ended early: SIGINT" in archive.text("summary.txt")
    assert archive.lines("samples/page.jsonl")
    assert json.loads(archive.text("status-at-end.json"))["state"] == "ready"


def test_no_secret_of_a_node_is_in_its_record(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    certificate, tls_key = make_certificate(tmp_path)
    tokens, curve = tmp_path / "tokens", tmp_path / "clients.key"
    tokens.write_text(f"prometheus {TOKEN}\n")
    tokens.chmod(0o600)
    tls_key.chmod(0o600)
    make_node_key(curve)

    def guard(member: Member) -> None:
        ports = f'consume = "tcp://127.0.0.1:{free_port()}"\nhttp = "unix"'
        text = member.node.config.read_text().replace(
            "trusted_network = true", f'curve_secret_file = "{curve}"\n{ports}'
        )
        member.node.config.write_text(
            f"{text}[access]\nenabled = true\n[http]\n"
            f'tls_certificate_file = "{certificate}"\ntls_key_file = "{tls_key}"\n'
            f'tokens_file = "{tokens}"\n'
        )

    group = make_group(make_node, members=1, ack="majority-fsync", prepare=guard)
    node = group.members[0].node
    node.wait_ready()
    address = group.members[0].address
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_user("shop", {"secretKey": SECRET_KEY}, mode="add")
    with producer(group.members[0]) as sender:
        sender.send("orders", b"a body that is nobody else's").result()
    archive = record(node, 2, "--address", address)
    kept = list((node.folder / "group-keys").rglob("*"))
    secrets = set(secrets_in([tls_key, tokens, curve, *filter(Path.is_file, kept)]))

    everything = b"\0".join([archive.path.read_bytes(), *archive.content.values()])
    assert len(secrets) > 5
    assert [one for one in (*secrets, SECRET_KEY) if one.encode() in everything] == []
    assert b"a body that is nobody else's" not in everything
    assert str(tls_key) in archive.text("settings.toml")
    # Its name is the node's address, without what a file's name should not have.
    (asked,) = [name for name in archive.content if name.startswith("nodes/ipc-")]
    assert archive.text(asked)


def secrets_in(files: Iterable[Path]) -> Iterable[str]:
    """Whatever of private files could be one: long words, but for those that are public."""
    for path in files:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            continue
        for line in path.read_text().splitlines():
            if not PUBLIC.search(line):
                yield from (word.strip('"') for word in line.split() if len(word) >= 20)
