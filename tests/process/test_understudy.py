"""The process of an understudy: killed at any moment, promoted, and a node on what it has."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledgermq.cli.main import main
from ledgermq.conversion.understudy_note import read_note
from ledgermq.model.config.broker_conf import write_translation
from ledgermq.model.exit_status import EXIT_CONFIG, EXIT_STORAGE
from ledgermq.model.names.system_topics import is_system_topic
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.remoting.codes import RequestCode
from ledgermq.store.store_view import StoreView
from ledgermq.understudy.followed_settings import translation_of
from ledgermq.understudy.understudy_status import UnderstudyStatus, read_status
from tests.conftest import Golden
from tests.process.conftest import Node, wait_until
from tests.process.full_disk import SmallDisk, why_not
from tests.process.group_nodes import Member, add_settings, free_port
from tests.process.remoting_client import RemotingClient
from tests.process.understudy_process import UnderstudyProcess, understudy
from tests.unit.understudy.small_master import SmallMaster, small_master
from tests.unit.understudy.test_received_log import log_bytes
from tests.unit.understudy.test_understudy import LARGEST, queue_bytes

pytestmark = pytest.mark.slow

KILLS = 25
HOUR_S = 3_600
SEED = 47


@pytest.fixture
def process(tmp_path: Path) -> Iterator[UnderstudyProcess]:
    made = UnderstudyProcess(tmp_path / "understudy", tmp_path / "said")
    yield made
    made.kill()


def status_of(process: UnderstudyProcess) -> UnderstudyStatus:
    found = read_status(process.folder)
    return found or UnderstudyStatus(state="", since_ms=0, told_at_ms=0)


def wait_level(process: UnderstudyProcess, master: SmallMaster) -> None:
    def is_level() -> bool:
        status = status_of(process)
        return (status.durable, status.dispatched, status.tables_position) == (master.end,) * 3

    wait_until(is_level, "the understudy is level")


def samples(text: str) -> dict[str, float]:
    """Metrics by their names, but for times, which are those of now."""
    families = text_string_to_metric_families(text)
    found = {
        one.name.removeprefix("ledgermq_understudy_"): one.samples[0].value for one in families
    }
    times = [found.pop(name) for name in list(found) if name.endswith("_timestamp_seconds")]
    assert all(abs(time.time() - at) < HOUR_S for at in times)
    assert len(times) == 2
    return found


@pytest.mark.long(but=0)
def test_an_understudy_killed_at_any_moment_has_the_masters_bytes_in_the_end(
    golden: Golden, process: UnderstudyProcess
) -> None:
    chance = random.Random(SEED)
    with small_master(golden("gs1")) as master:
        master.end = 0
        process.add(master.address, master.remoting)
        for number in range(KILLS):
            known = len(master.reports)
            process.start()
            # It may die before it connects, or with bytes under way, reported or not.
            if chance.randrange(4):
                wait_until(lambda known=known: len(master.reports) > known, "it connects")
            master.grow(master.whole * (number + 1) // KILLS)
            if chance.randrange(2) and len(master.reports) > known:
                heard = len(master.reports[-1])
                with master.changed:
                    master.changed.wait_for(
                        lambda heard=heard: len(master.reports[-1]) > heard, chance.random()
                    )
            process.kill()
        process.start()
        wait_level(process, master)
        assert process.stop() == 0

    assert log_bytes(process.folder) == log_bytes(golden("gs1"))
    assert queue_bytes(process.folder) == queue_bytes(golden("gs1"))


def test_backups_and_pieces_of_a_running_master_are_made_of_its_understudy(
    golden: Golden, process: UnderstudyProcess, tmp_path: Path
) -> None:
    """By ``--runtime-dir`` of its folder, while it follows; each one goes on where it was. Spark
    reads the folder as it reads any store.
    """
    streams, pieces, whole = (str(tmp_path / name) for name in ("streams", "pieces", "whole"))
    words = [str(process.folder), "--runtime-dir", str(process.folder)]
    makes = [
        ["backup", "stream", *words, "--to", streams, "--once"],
        ["piece", "seal", *words, "--to", pieces],
    ]
    with small_master(golden("gs1")) as master:
        master.end = master.whole // 2
        process.add(master.address, master.remoting)
        refused = main(makes[0])
        process.start()
        # It has whole records alone.
        wait_until(lambda: status_of(process).durable > master.end - LARGEST, "it follows")
        first = [main(one) for one in makes]
        point = status_of(process).durable
        master.grow(master.whole)
        wait_level(process, master)
        second = [main(one) for one in makes] + [
            main(["backup", "create", *words[:1], whole, *words[1:]])
        ]
        with closing(StoreSource(process.folder)) as source:
            queues = source.queues()
        another = main(["piece", "seal", str(golden("gs1")), *words[1:], "--to", pieces])
        assert process.stop() == 0
    (backup,) = Path(whole).iterdir()
    restored = {
        place: main(["backup", "restore", place, str(tmp_path / f"again-{number}")])
        for number, place in enumerate((streams, pieces, str(backup)))
    }
    then = ["backup", "restore", streams, str(tmp_path / "then"), "--to-position", str(point)]
    restored["then"] = main(then)

    assert 0 < point < len(log_bytes(process.folder))
    assert (refused, first, second, another) == (
        EXIT_STORAGE, [0, 0], [0, 0, 0], EXIT_CONFIG
    )  # fmt: skip
    assert set(restored.values()) == {0}
    with closing(StoreSource(golden("gs1"))) as source:
        assert queues == source.queues()
    expected = log_bytes(golden("gs1"))
    for number in range(3):
        again = tmp_path / f"again-{number}"
        assert log_bytes(again) == expected
        assert queue_bytes(again) == queue_bytes(golden("gs1"))
        assert main(["store", "check", str(again)]) == 0
    assert log_bytes(tmp_path / "then") == expected[:point]


@pytest.mark.long
def test_a_folder_is_promoted_when_its_master_is_gone_and_a_node_serves_it(
    golden: Golden,
    process: UnderstudyProcess,
    make_node: Callable[[], Node],
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = make_node()
    words = ["promote", "--folder", str(process.folder), "--settings", str(node.config)]
    words += ["--remoting", f"127.0.0.1:{free_port()}", "--runtime-dir", str(node.runtime)]
    with small_master(golden("gs1")) as master:
        master.config["aclEnable"] = "true"
        topics = {"typed": {"topicName": "typed", "attributes": {"message.type": "LITE"}}}
        master.more_topics = topics
        process.add(master.address, master.remoting)
        process.start()
        wait_level(process, master)
        following = understudy("show", "--folder", process.folder, "--metrics").stdout
        refused = understudy(*words)

        assert (refused.returncode, "still answers" in refused.stderr) == (1, True)
    away = wait_until(
        lambda: found if (found := process.show())["state"] == "away" else None, "it is away"
    )
    assert main(["understudy", "show", "--folder", str(process.folder)]) == 0
    assert "master away since" in capsys.readouterr().out
    held = understudy(*words)

    assert away["lag_bytes"] == 0
    assert away["trouble"]
    assert held.returncode == 2, held.stderr
    assert process.stop() == 0
    assert main(["understudy", *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["end"] == master.whole
    assert "ledgermq acl import" in facts["accounts"]
    assert facts["not_obeyed"] == ["topics.json: message.type=LITE of 1 (typed)"]
    assert main(["understudy", "show", "--folder", str(process.folder), "--metrics"]) == 0
    since = capsys.readouterr().out
    assert samples(following) == {
        "promoted": 0, "following": 1, "lag_bytes": 0,
        "durable_bytes": master.whole, "dispatched_bytes": master.whole,
    }  # fmt: skip
    assert samples(since) == {**samples(following), "promoted": 1, "following": 0}
    node.root = process.folder
    node.serve()
    assert node.stop() == 0
    # What follows is the node's own.
    again = understudy("run", "--folder", process.folder)
    assert (again.returncode, "promoted" in again.stderr) == (1, True)


@pytest.mark.parametrize("are_ready", [False, True], ids=["settings of the master", "own settings"])
def test_a_node_that_waits_for_the_masters_end_takes_its_place(
    golden: Golden, process: UnderstudyProcess, make_node: Callable[[], Node], are_ready: bool
) -> None:
    node, port = make_node(), free_port()
    words = ["-m", "ledgermq.cli.main", "understudy", "promote", "--serve"]
    words += ["--folder", str(process.folder), "--settings", str(node.config)]
    words += ["--remoting", f"127.0.0.1:{port}", "--runtime-dir", str(node.runtime)]
    with small_master(golden("gs1")) as master:
        process.add(master.address, master.remoting)
        process.start()
        wait_level(process, master)
        node.root = process.folder
        if are_ready:
            note = read_note(process.folder)
            assert note is not None
            own = translation_of(note, process.folder)
            ports = {"remoting": f"127.0.0.1:{port}", "trusted_network": True}
            unfit = f"max_index_num = {own.settings.store.max_index_num}"
            text = write_translation(own, name="own")
            node.config.write_text(text.replace(unfit, "max_index_num = 7"))
            refused = understudy(*words[3:])
            node.config.write_text(text)
            add_settings(
                Member(node, "n0"), {"listen": {**ports, "runtime_dir": str(node.runtime)}}
            )
            before = node.config.read_text()
        node.launch(words)
        wait_until(lambda: "waits until the master" in node.log.read_text(), "it waits")
        asked = len(master.reports)
    begin = time.monotonic()
    node.wait_ready()
    print(f"ended to ready {time.monotonic() - begin:.2f} s")
    client = RemotingClient(f"127.0.0.1:{port}")
    client.close()

    if are_ready:
        assert (refused.returncode, "store.max_index_num" in refused.stderr) == (1, True)
        assert node.config.read_text() == before
    assert (process.has_ended, process.status) == (True, 0)
    assert f"end: {master.whole}\n" in node.log.read_text()
    # It is followed by one connection while somebody waits.
    assert asked == 1
    assert node.stop() == 0
    # As systemd does, who starts the same again.
    node.forget_told()
    node.launch(words)
    node.wait_ready()
    assert node.stop() == 0


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("is_full_from_the_first", [True, False])
def test_a_full_disk_is_waited_for(
    golden: Golden, tmp_path: Path, is_full_from_the_first: bool
) -> None:
    disk, waits = SmallDisk(tmp_path), "waits for space on the disk"
    disk.make()
    # The mount itself, with its ``lost+found``.
    process = UnderstudyProcess(disk.mount, tmp_path / "said")
    try:
        with small_master(golden("gs1")) as master:
            process.add(master.address, master.remoting)
            if not is_full_from_the_first:
                process.start()
                wait_level(process, master)
                process.kill()
                shutil.rmtree(process.folder / "commitlog")
                shutil.rmtree(process.folder / "consumequeue")
                (process.folder / "ledgermq/log-checkpoint").unlink()
            disk.fill()
            process.start()
            wait_until(
                lambda: process.has_ended or waits in process.said.read_text(), "a full disk"
            )
            pid = process.pid
            disk.give_back()
            wait_until(
                lambda: process.has_ended or status_of(process).dispatched == master.end,
                "all of it",
            )
            assert (process.pid, process.status) == (pid, None), process.said.read_text()
            assert process.stop() == 0
    finally:
        process.kill()
        disk.unmount()

    assert process.said.read_text().count(waits) == 1


def test_a_folder_that_follows_is_no_nodes(
    golden: Golden, process: UnderstudyProcess, make_node: Callable[[], Node]
) -> None:
    with small_master(golden("gs1")) as master:
        process.add(master.address, master.remoting)
        process.start()
        wait_level(process, master)
        assert process.stop() == 0
    node = make_node()
    node.configure(store={"path_root_dir": str(process.folder), "log": "commitlog"})

    assert main(["serve", "--config", str(node.config), "--check"]) == 1


@pytest.mark.long
def test_queues_without_a_message_in_the_log_go_on_where_the_masters_ended(
    golden_copy: Golden,
    process: UnderstudyProcess,
    make_node: Callable[[], Node],
) -> None:
    """RocketMQ has deleted the first file of its log as too old."""
    store, node, port = golden_copy("g6"), make_node(), free_port()
    with closing(StoreView(store)) as view:
        ends = {(queue.topic, queue.queue_id): queue.end for queue in view.queues()}
    min((store / "commitlog").iterdir()).unlink()
    with small_master(store) as master:
        master.queue_ends = ends
        process.add(master.address, master.remoting)
        process.start()
        wait_level(process, master)
    assert process.stop() == 0
    words = ["promote", "--folder", str(process.folder), "--settings", str(node.config)]
    words += ["--remoting", f"127.0.0.1:{port}", "--runtime-dir", str(node.runtime)]
    assert main(["understudy", *words]) == 0
    node.serve()
    client = RemotingClient(f"127.0.0.1:{port}")
    # Where the node stores nothing by itself: what waited for its time is due since years.
    asked = {
        (topic, queue_id): end
        for (topic, queue_id), end in ends.items()
        if not (is_system_topic(topic) or topic.startswith("%RETRY%"))
    }

    def found() -> dict[tuple[str, int], int]:
        replies = {
            queue: client.ask(
                RequestCode.GET_MAX_OFFSET, {"topic": queue[0], "queueId": queue[1]}
            ).fields
            for queue in asked
        }
        return {queue: int(fields.get("offset", -1)) for queue, fields in replies.items()}

    wait_until(lambda: found() == asked, "all ends are the master's")
    client.close()
    assert node.stop() == 0
