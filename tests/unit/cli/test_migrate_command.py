"""``ledgermq migrate``: what it writes down, what it finds and refuses, and that it only looks."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from ledgermq.cli.main import main
from ledgermq.daemon.store_lock import stopped_store
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.config.settings import LogKind
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_OK, EXIT_STORAGE
from ledgermq.process.settings.settings_loading import load_settings
from tests.conftest import Golden
from tests.process.group_nodes import free_port

SIZES = ("maxHashSlotNum=500", "maxIndexNum=400")


class Host:
    """A RocketMQ broker that has stopped, and whoever moves it."""

    def __init__(self, root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.conf = folder / "broker.conf"
        self.manifest = folder / "manifest"
        self.settings = folder / "ledgermq.toml"
        self._runtime = folder / "run"
        self._capsys = capsys
        self.port = free_port()

    def configure(self, *lines: str) -> None:
        fixed = [f"storePathRootDir={self.root}", f"listenPort={self.port}", *SIZES]
        self.conf.write_text("\n".join([*fixed, *lines, ""]))

    def migrate(self, *words: object) -> tuple[int, dict[str, Any], str]:
        status = main(["migrate", *map(str, words), "--json"])
        captured = self._capsys.readouterr()
        facts: dict[str, Any] = json.loads(captured.out) if captured.out else {}
        return status, facts, captured.err

    def take_over(self, *words: object) -> tuple[int, dict[str, Any], str]:
        return self.migrate(
            "take-over", self.conf, "--manifest", self.manifest, "--settings", self.settings,
            "--runtime-dir", self._runtime, *words,
        )  # fmt: skip

    def verify(self) -> tuple[int, dict[str, Any], str]:
        return self.migrate("verify", self.manifest, self.root)

    @property
    def content(self) -> dict[str, bytes]:
        """All that is RocketMQ's."""
        return {
            str(path): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and path.relative_to(self.root).parts[0] != "ledgermq"
        }


@pytest.fixture
def host(golden_copy: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    made = Host(golden_copy("gs1"), tmp_path, capsys)
    made.configure("brokerName=oracle")
    return made


def test_what_a_broker_has_is_written_down_and_found_again(host: Host) -> None:
    before = host.content
    status, facts, _ = host.migrate("check", host.conf)

    assert status == EXIT_OK
    assert (facts["obstacles"], facts["broker"], facts["log"]) == (
        "none", "does not run", "commitlog",
    )  # fmt: skip
    assert facts["positions_outside_their_queues"] == "none"

    status, facts, _ = host.take_over()
    settings = load_settings(host.settings)

    assert status == EXIT_OK
    assert facts["messages"] > 500
    assert facts["offsets"] >= 4
    assert settings.store.log is LogKind.COMMITLOG
    assert settings.listen.remoting == f"*:{host.port}"
    assert settings.node.broker_name == "oracle"

    verified, found, _ = host.verify()

    assert verified == EXIT_OK
    assert found["compared"] == facts["messages"]
    assert (found["added"], found["removed"], found["went_back"]) == (0, 0, "none")
    assert host.content == before


def test_positions_beyond_their_queues_are_told_before_a_node_puts_them_right(host: Host) -> None:
    config = host.root / "config"
    offsets = {"plain0@golden-group": {"0": 5_000}, **{f"gone@g{at}": {"0": 7} for at in range(30)}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (config / "delayOffset.json").write_text('{"offsetTable": {"1": 400}}')
    before = host.content
    told = [
        facts["positions_outside_their_queues"]
        for _, facts, _ in (host.migrate("check", host.conf), host.take_over())
    ]

    assert told[0] == told[1]
    assert told[0][0] == (
        "consumerOffset.json: group golden-group, topic plain0, queue 0: 5000, beyond its queue's"
        " end; a node begins at 34"
    )
    assert told[0][-1] == "and 12 more"
    assert host.content == before


def test_a_table_that_cannot_be_read_stands_in_the_way_and_one_written_by_hand_does_not(
    host: Host,
) -> None:
    path = host.root / "config" / "topics.json"
    whole = path.read_bytes()
    path.write_bytes(b"/* ours */" + whole)
    edited, by_hand, _ = host.migrate("check", host.conf)
    path.write_bytes(whole[:-9])
    path.with_name("topics.json.bak").write_bytes(whole)
    damaged, facts, _ = host.migrate("check", host.conf)
    refused, _, said = host.take_over()
    path.with_name("topics.json.bak").unlink()
    _, alone, _ = host.migrate("check", host.conf)

    assert (edited, by_hand["tables_written_by_hand"]) == (EXIT_OK, ["topics.json"])
    assert (damaged, refused) == (1, EXIT_CONFIG)
    (obstacle,) = facts["obstacles"]
    assert str(path) in obstacle
    assert "its copy (.bak) would be taken" in obstacle
    assert str(path) in said
    assert "nor can its copy (.bak): missing" in alone["obstacles"][0]
    assert path.read_bytes() == whole[:-9]
    assert not host.settings.exists()


def test_a_missing_message_group_or_offset_is_named(host: Host) -> None:
    host.take_over()
    queue = host.root / "consumequeue" / "plain0" / "0" / f"{0:020}"
    unit = bytearray(queue.read_bytes())
    unit[2 * UNIT_SIZE + 19] ^= 1
    queue.write_bytes(unit)
    status, _, said = host.verify()

    assert status == EXIT_STORAGE
    assert "queue plain0/0" in said
    unit[2 * UNIT_SIZE + 19] ^= 1
    queue.write_bytes(unit)

    for name, text in (
        ("consumerOffset.json", "offset plain0@golden-group"),
        ("subscriptionGroup.json", "group golden-group"),
        ("topics.json", "topic plain0"),
    ):
        path = host.root / "config" / name
        content = path.read_bytes()
        path.unlink()
        status, _, said = host.verify()
        path.write_bytes(content)

        assert status == EXIT_STORAGE
        assert text in said

    shutil.rmtree(host.root / "consumequeue" / "plain0")
    status, _, said = host.verify()

    assert status == EXIT_STORAGE
    assert "plain0/0" in said


def test_offsets_that_went_back_are_told_and_are_no_fault(host: Host) -> None:
    host.take_over()
    path = host.root / "config" / "consumerOffset.json"
    text = path.read_text()
    at = text.index("plain0@golden-group")
    first = text.index(":", text.index("{", at)) + 1
    path.write_text(text[:first] + "1" + text[text.index(",", first) :])
    status, facts, _ = host.verify()

    assert status == EXIT_OK
    assert len(facts["went_back"]) == 1
    assert facts["went_back"][0].startswith("offset plain0@golden-group/")


def test_a_broker_that_runs_is_seen_and_not_taken_over(host: Host) -> None:
    with stopped_store(host.root):
        status, facts, _ = host.migrate("check", host.conf)

        assert status == EXIT_OK
        # POSIX locks of its own process are invisible; see the tests with real nodes.
        assert facts["broker"] == "does not run"
        status, _, said = host.take_over()

        assert status == EXIT_STORAGE
        assert "held" in said
    assert not host.settings.exists()
    assert not host.manifest.exists()


def test_what_stands_in_the_way_is_said_before_anything_is_written(host: Host) -> None:
    host.configure("enableDLegerCommitLog=true", "dLegerSelfId=n0", "dLegerPeers=n0-localhost:1")
    status, _, said = host.take_over()

    assert status == EXIT_CONFIG
    assert "dledger" in said

    host.configure()
    static = {"topicQueueMappingInfoMap": {"a": {"totalQueues": 4}}}
    (host.root / "config" / "topicQueueMapping.json").write_text(json.dumps(static))
    status, facts, _ = host.migrate("check", host.conf)

    assert status == EXIT_CONFIG
    assert facts["store_of"] == "RocketMQ 5, plain"
    assert "1 static topics are spread over brokers" in str(facts["obstacles"])
    status, _, said = host.take_over()

    assert status == EXIT_CONFIG
    assert "RocketMQ 5" in said
    assert not host.settings.exists()


def test_files_of_another_size_than_the_settings_say_stand_in_the_way(host: Host) -> None:
    host.configure("maxIndexNum=401")
    status, facts, _ = host.migrate("check", host.conf)

    (obstacle,) = facts["obstacles"]
    assert status == EXIT_CONFIG
    assert "store.max_index_num" in obstacle
    assert obstacle.partition(" (")[0] in host.take_over()[2]


def test_what_was_done_is_told_in_words(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "check", str(host.conf)]) == EXIT_OK
    told = capsys.readouterr().out.splitlines()

    assert {"member: -", "left by crash: no", "obstacles: none"} <= set(told)


def test_who_accepts_a_loss_names_it_and_the_settings_have_it(host: Host) -> None:
    (host.root / "timerwheel").touch()
    status, facts, _ = host.migrate("check", host.conf)
    (host.root / "config" / "topics").mkdir()
    (host.root / "config" / "topics" / "CURRENT").touch()
    refused, _, _ = host.migrate("check", host.conf)
    wrong, _, said = host.take_over("--leave-behind", "tables,tmers")
    checked, _, _ = host.migrate("check", host.conf, "--leave-behind", "tables")
    taken, _, _ = host.take_over("--leave-behind", "tables, pop")

    # A wheel in which nothing waits is no obstacle.
    assert (status, facts["stays_for_rocketmq"]) == (EXIT_OK, ["timerwheel"])
    assert (refused, wrong, checked, taken) == (EXIT_CONFIG, EXIT_CONFIG, EXIT_OK, EXIT_OK)
    assert "tmers" in said
    assert load_settings(host.settings).store.leave_behind == ("tables", "pop")


def test_clients_are_told_the_address_of_the_host_or_the_one_that_was_asked_for(host: Host) -> None:
    own = {one.address for many in psutil.net_if_addrs().values() for one in many}
    _, facts, said = host.take_over()
    of_host = load_settings(host.settings).node.broker_ip
    host.settings.unlink()
    host.take_over("--broker-ip", "10.9.8.7")
    asked = load_settings(host.settings).node.broker_ip
    host.settings.unlink()
    host.configure("brokerIP1=10.1.2.3")
    host.take_over()

    assert facts["broker_ip"] == of_host
    assert of_host in own
    assert of_host != "127.0.0.1" or len(psutil.net_if_addrs()) == 1
    assert "brokerIP1" not in said
    assert "cleanFileForciblyEnable" in said
    assert asked == "10.9.8.7"
    assert load_settings(host.settings).node.broker_ip == "10.1.2.3"


@pytest.mark.skipif(os.geteuid() != 0, reason="only a superuser can act as another user")
def test_a_superuser_writes_where_the_owner_of_the_store_may_not(
    golden_copy: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Where any user may go: pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory(prefix="lmq-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        root = place / "store"
        shutil.copytree(golden_copy("gs1"), root)
        for path in (root, *root.rglob("*")):
            os.chown(path, 65_534, 65_534)
        closed = place / "closed"
        closed.mkdir(mode=0o700)
        host = Host(root, closed, capsys)
        host._runtime = tmp_path / "run"
        host.configure("brokerName=oracle")
        taken, _, said = host.take_over()
        back, *_ = host.migrate("back", host.root, "--manifest", closed / "after")

        assert (taken, back) == (EXIT_OK, EXIT_OK), said
        assert host.manifest.stat().st_uid == 0
        assert (closed / "after").exists()
        assert {path.stat().st_uid for path in root.rglob("*")} == {65_534}


def test_settings_that_are_there_are_not_overwritten(host: Host) -> None:
    host.settings.write_text("mine")
    status, _, said = host.take_over()

    assert status == EXIT_CONFIG
    assert str(host.settings) in said
    assert host.settings.read_text() == "mine"


def test_the_way_back_is_written_down_and_found_after_a_downgrade_too(host: Host) -> None:
    main(["store", "upgrade", str(host.root), "--group", "g", "--self-id", "n0"])
    host._capsys.readouterr()
    status, facts, _ = host.migrate("back", host.root, "--manifest", host.manifest)

    assert status == EXIT_OK
    assert facts["log"] == "dledger"
    assert (facts["for_rocketmq"], facts["stays"]) == ("4.9", "nothing")
    main(["store", "downgrade", str(host.root)])
    host._capsys.readouterr()
    verified, found, said = host.verify()

    assert verified == EXIT_OK, said
    assert found["compared"] == facts["messages"]


def test_a_manifest_that_was_changed_is_refused(host: Host) -> None:
    host.take_over()
    host.manifest.write_bytes(host.manifest.read_bytes().replace(b"golden", b"silver"))
    status, _, said = host.verify()

    assert status == EXIT_STORAGE
    assert "checksum" in said
    status, _, said = host.migrate("verify", host.manifest.with_name("none"), host.root)

    assert status == EXIT_CONFIG


def test_offsets_of_a_broker_with_light_queues_are_counted_and_odd_queues_named(
    golden_copy: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(golden_copy("l494"), tmp_path, capsys)
    host.configure("brokerName=oracle", "enableLmq=true")
    odd = ["%LMQ%a b", *(f"%LMQ%x{number:02}" for number in range(30))]
    for name in odd:
        shutil.copytree(host.root / "consumequeue" / "%LMQ%one", host.root / "consumequeue" / name)
    before = host.content
    status, facts, _ = host.migrate("check", host.conf)
    taken, moved, _ = host.take_over()

    assert (status, taken) == (EXIT_OK, EXIT_OK)
    assert facts["obstacles"] == "none"
    for told in (facts, moved):
        assert told["consumed_offsets"] == "lmqConsumerOffset.json"
        assert told["queues_of_no_topic"][:3] == ["%LMQ%a b", "%LMQ%one", "%LMQ%two"]
        assert told["queues_of_no_topic"][-1] == "and 13 more"
    assert moved["offsets"] == 8
    assert host.content == before

    # As a node, or the other kind of broker, leaves them: the file beside it is not looked at.
    light = host.root / "config" / "lmqConsumerOffset.json"
    usual = light.with_name("consumerOffset.json")
    usual.write_text(json.dumps({"offsetTable": {"work@g5-retry": {"0": 2}}}))
    os.utime(light, (1, 1))
    verified, _, lost = host.verify()
    _, both, _ = host.migrate("check", host.conf)

    assert verified == EXIT_STORAGE
    assert "offset work@g5-retry/1: 3, now missing" in lost
    assert both["consumed_offsets"] == (
        "consumerOffset.json, and not lmqConsumerOffset.json, which was written before it"
    )
