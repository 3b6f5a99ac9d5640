"""A downgrade gives a plain store with every message at its queue offset; an undo, what was."""

from __future__ import annotations

import argparse
import os
from collections import namedtuple
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli.arguments import add_size_options
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.conversion.conversion_journal import ConversionKind, Phase, read_journal
from ledgermq.conversion.downgrade import Downgrade, downgrade, plan_downgrade, undo_downgrade
from ledgermq.conversion.upgrade import upgrade
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import NodeId
from ledgermq.repair.log_verify import verify_log
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.state_mark import read_state_mark, write_state_mark
from ledgermq.store.store_view import QueuedMessage, StoreView
from tests.conftest import Golden

Place = tuple[str, int, int]


def section(root: Path) -> StoreSection:
    parser = argparse.ArgumentParser()
    add_size_options(parser)
    return store_section(parser.parse_args([]), root, LogKind.COMMITLOG)


def downgraded(root: Path) -> Downgrade:
    return downgrade(root, section(root), self_id=None, progress=lambda *_: None)


def told(queued: QueuedMessage) -> tuple[Any, ...]:
    """All that a message says but for where it is."""
    message = queued.message
    return (
        message.topic, message.queue_id, message.queue_offset, bytes(message.body),
        message.properties, message.flag, message.sys_flag, message.born_timestamp,
        message.born_host, message.store_timestamp, message.store_host, message.reconsume_times,
    )  # fmt: skip


def messages(root: Path) -> dict[Place, tuple[Any, ...]]:
    with closing(StoreView(root)) as view:
        return {
            (queued.queue.topic, queued.queue.queue_id, queued.queue_offset): told(queued)
            for queued in view.messages()
        }


def halves_named(root: Path) -> set[tuple[str | None, str | None]]:
    """For each message that ended a transaction: its unique id, and that of what it names."""
    with closing(StoreView(root)) as view:
        return {
            (
                queued.message.unique_id,
                view.message_at(queued.message.prepared_transaction_offset).unique_id,
            )
            for queued in view.messages()
            if queued.message.prepared_transaction_offset
        }


@pytest.mark.parametrize("name", ["gd0", "gu0"])
def test_every_message_is_at_its_queue_offset(
    name: str, golden: Golden, golden_copy: Golden
) -> None:
    root = golden_copy(name)
    before, named = messages(root), halves_named(root)
    done = downgraded(root)

    assert messages(root) == before
    assert halves_named(root) == named
    assert named
    with closing(StoreView(root)) as view, closing(StoreView(golden(name))) as old:
        assert view.queues() == old.queues()
        assert view.directory.log is LogKind.COMMITLOG
        assert view.log.end == done.end
        found = verify_log(view.log)
        assert found.records == verify_log(old.log).records


def test_nothing_is_deleted_from_the_plain_log_before_it_is_known_what_waits_in_it(
    golden_copy: Golden,
) -> None:
    """Positions are lower now: what was kept from one on begins before it."""
    root = golden_copy("gd0")
    mark = root / "ledgermq" / "state-snapshot"
    mark.parent.mkdir(exist_ok=True)
    write_state_mark(mark, 1_000_000)
    downgraded(root)

    assert read_state_mark(mark) == 0

    undo_downgrade(root)

    assert read_state_mark(mark) == 1_000_000


@pytest.mark.parametrize("name", ["gd0", "gu0"])
def test_an_archive_has_the_same_messages_by_the_new_positions(
    name: str, golden_copy: Golden
) -> None:
    """Else retention would take what is not archived for archived, and the archive be refused."""
    root = golden_copy(name)
    places = positions_of(root)
    ends = {f"a{number}": end for number, end in enumerate([0, *sorted(places.values()), 2**40])}
    had = {mark: before(places, end) for mark, end in ends.items()}
    marks = {mark: {"position": end, "at": 7} for mark, end in ends.items()}
    table = ConfigFile(root / "ledgermq" / "archives.json")
    table.save({"archives": marks, "ledgermqApplied": 3})
    downgraded(root)
    document: dict[str, Any] = table.load()

    assert document["ledgermqApplied"] == 3
    places = positions_of(root)
    assert {
        mark: before(places, fields["position"]) for mark, fields in document["archives"].items()
    } == had
    assert len(set(map(len, had.values()))) > 100

    undo_downgrade(root)

    assert table.load()["archives"] == marks


def positions_of(root: Path) -> dict[Place, int]:
    with closing(StoreView(root)) as view:
        return {
            (queued.queue.topic, queued.queue.queue_id, queued.queue_offset): int(
                queued.message.physical_offset
            )
            for queued in view.messages()
        }


def before(places: dict[Place, int], end: int) -> set[Place]:
    return {place for place, position in places.items() if position < end}


def test_a_store_that_a_crash_left_is_recovered_first(golden: Golden, golden_copy: Golden) -> None:
    root = golden_copy("gd1.live")
    with closing(StoreView(root)) as view:
        records = [
            (one.message.queue_offset, bytes(one.message.body)) for one in view.log.iterate()
        ]
        end = view.log.end
    path = root / "dledger-n1" / "data" / f"{1_048_576:020d}"
    with path.open("r+b") as file:
        file.seek(end - 1_048_576)
        file.write(b"\0\0\0\1\0\0\4\0")
    downgraded(root)
    with closing(StoreView(root)) as view:
        assert not view.directory.aborted
        assert records == [
            (one.message.queue_offset, bytes(one.message.body)) for one in view.log.iterate()
        ]


@pytest.mark.parametrize("name", ["gd0", "gu0"])
def test_an_undo_gives_back_every_file(name: str, golden: Golden, golden_copy: Golden) -> None:
    root = golden_copy(name)
    downgraded(root)
    undo_downgrade(root)
    before = {path.relative_to(golden(name)) for path in golden(name).rglob("*")}
    now = {path.relative_to(root) for path in root.rglob("*")}

    assert {path for path in now - before if path.parts[0] != "ledgermq"} == set()
    assert before <= now
    assert messages(root) == messages(golden(name))


def test_the_old_part_of_an_upgraded_log_stays_as_it_is(
    golden: Golden, golden_copy: Golden
) -> None:
    root = golden_copy("gu0")
    downgraded(root)
    name = "commitlog/00000000000000000000"

    assert (root / name).read_bytes() == (golden("gu0") / name).read_bytes()
    assert (root / "commitlog" / f"{1_048_576:020d}").exists()


def test_a_store_that_was_just_upgraded_comes_back(golden: Golden, golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    upgrade(root, section(root), group="g", self_id=NodeId("n0"), progress=lambda *_: None)
    done = downgraded(root)

    assert messages(root) == messages(golden("gs1"))
    assert done.records == 0
    assert not (root / "dledger-n0").exists()


def test_queues_whose_messages_are_all_deleted_keep_their_next_offset(
    golden_copy: Golden,
) -> None:
    root = golden_copy("gd0")
    (root / "dledger-n0" / "data" / f"{0:020d}").unlink()
    with closing(StoreView(root)) as view:
        before = {(queue.topic, queue.queue_id): queue.end for queue in view.queues()}
    held = messages(root)
    done = downgraded(root)
    with closing(StoreView(root)) as view:
        now = {(queue.topic, queue.queue_id): queue.end for queue in view.queues()}
        assert view.log.first == 1_048_576

    assert now == before
    assert messages(root) == held
    assert done.kept_queues > 0
    assert done.records == len(held) > 0


def test_a_downgrade_cannot_be_undone_once_messages_were_written(
    golden: Golden, golden_copy: Golden
) -> None:
    root = golden_copy("gd0")
    done = downgraded(root)
    path = root / "commitlog" / f"{1_048_576:020d}"
    with path.open("r+b") as file:
        record = file.read(int.from_bytes(file.read(4), "big") - 4)
        size = 4 + len(record)
        file.seek(done.end - 1_048_576)
        again = bytearray(size.to_bytes(4, "big") + record)
        again[28:36] = done.end.to_bytes(8, "big")
        file.write(again)

    with pytest.raises(ConfigError, match="were written since"):
        undo_downgrade(root)


def test_a_damaged_log_is_refused_and_nothing_is_changed(golden_copy: Golden) -> None:
    root = golden_copy("gd0")
    with (root / "dledger-n0" / "data" / f"{0:020d}").open("r+b") as file:
        file.seek(400_000)
        file.write(bytes(100))

    with pytest.raises(CorruptLogError):
        downgraded(root)
    assert not (root / "commitlog").exists()
    assert (root / "dledger-n0" / "data").is_dir()


def test_too_little_room_is_refused_with_both_numbers(
    golden_copy: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_copy("gd0")
    Disk = namedtuple("Disk", "f_bavail f_frsize")
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(10, 4_096))
    needed = plan_downgrade(root, self_id=None).needed

    with pytest.raises(ConfigError, match=f"needs {needed} bytes, the disk has 40960"):
        downgraded(root)
    assert read_journal(root) is None


def test_a_plan_names_the_last_entry(golden: Golden) -> None:
    plan = plan_downgrade(golden("gd0"), self_id=None)
    with closing(StoreView(golden("gd0"))) as view:
        *_, last = view.log.iterate()

    assert last.header is not None
    assert (plan.last, plan.term) == (last.header.index, last.header.term)
    assert plan.end == plan.committed_end == view.log.end


def test_a_plain_store_is_refused(golden_copy: Golden) -> None:
    with pytest.raises(ConfigError, match="plain one already"):
        downgraded(golden_copy("gs1"))


def test_a_second_downgrade_is_refused(golden_copy: Golden) -> None:
    root = golden_copy("gd0")
    downgraded(root)
    found = read_journal(root)

    assert found is not None
    assert (found.kind, found.phase) == (ConversionKind.DOWNGRADE, Phase.SWITCHED)
    with pytest.raises(ConfigError, match="--finish"):
        downgraded(root)


def test_light_queues_stay_for_rocketmq_through_an_upgrade_and_a_downgrade(
    golden_copy: Golden,
) -> None:
    """They point into the part of the log that was plain before, and no log brings them back."""
    root = golden_copy("l494")
    names = ("%LMQ%one", "%LMQ%two")

    def content() -> list[bytes]:
        return [(root / "consumequeue" / name / "0" / f"{0:020d}").read_bytes() for name in names]

    before = content()
    upgrade(root, section(root), group="g", self_id=NodeId("n0"), progress=lambda *_: None)
    upgraded = content()
    downgraded(root)

    assert before == upgraded == content()
