"""Stores of mirrors: opened by mirrors alone, promoted once, and what the old log had more."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.conversion.missing_messages import MissingQueue, common_end, missing_behind
from ledgermq.members.mirrors.mirror_mark import check_mirror_mark, mirror_mark_path
from ledgermq.members.mirrors.mirror_promotion import (
    LAST_WORD,
    copy_end,
    promote_mirror,
)
from ledgermq.members.mirrors.mirror_report import MirrorReport, latest_word, write_mirror_report
from ledgermq.members.mirrors.promotion_note import (
    FILE,
    check_begins_alone,
    read_promotion,
)
from ledgermq.model.config.settings import MirrorSection, Settings
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.group_epoch import epoch_of
from ledgermq.model.ids import NodeId, Term
from ledgermq.model.names.queue_name import QueueName
from ledgermq.raft.messages import HardState
from ledgermq.raft_node.term_file import TermFile
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.unit.conversion.killed_conversion import copy, in_child
from tests.unit.raft_node.mirror_pair import StoredLog

KILLS = 14
MIRROR = MirrorSection(sources=("https://10.0.0.1:9464",), token_file=Path("/token"))


def mirror_of(settings: Settings) -> Settings:
    return replace(settings, mirror=MIRROR)


@pytest.fixture
def old(tmp_path: Path) -> StoredLog:
    """A log of 300 messages."""
    made = StoredLog(tmp_path / "old", "n0")
    made.put(300, term=7)
    return made


@pytest.fixture
def mirror(old: StoredLog, tmp_path: Path) -> StoredLog:
    """A copy of it, closed, with the mark of a mirror."""
    made = StoredLog(tmp_path / "mirror", "n0")
    made.writer.close()
    shutil.rmtree(made.paths.root)
    (made.paths.own).mkdir(parents=True)
    check_mirror_mark(mirror_of(made.settings))
    shutil.copytree(old.paths.data.parent, made.paths.data.parent)
    return made


def report(**fields: object) -> MirrorReport:
    values: dict[str, object] = {
        "source": "", "node": "n1", "leads": False, "hears": True, "trouble": "", "lag_messages": 0,
        "lag_bytes": 0, "lag_s": 1.5, "silent_s": 1.5, "held": 0, "source_position": 0,
        "source_index": 0, "received_bytes": 0, "marked": 0, "mark_trouble": "", "at_ms": 5,
    }  # fmt: skip
    return {**values, **fields}  # type: ignore[return-value]


def test_a_store_with_the_mark_is_opened_by_a_mirror_alone(mirror: StoredLog) -> None:
    check_mirror_mark(mirror_of(mirror.settings))

    with pytest.raises(ConfigError, match="mirror promote"):
        check_mirror_mark(mirror.settings)


def test_a_mirror_takes_no_store_that_has_a_log_of_its_own(old: StoredLog) -> None:
    with pytest.raises(ConfigError, match="a log of its own"):
        check_mirror_mark(mirror_of(old.settings))

    assert not mirror_mark_path(old.settings).exists()
    check_mirror_mark(old.settings)


def test_a_mark_that_is_torn_opens_nothing(mirror: StoredLog) -> None:
    path = mirror_mark_path(mirror.settings)
    path.write_bytes(path.read_bytes()[:-3])

    for settings in (mirror.settings, mirror_of(mirror.settings)):
        with pytest.raises(CorruptLogError):
            check_mirror_mark(settings)


def test_a_promoted_store_is_a_groups_in_a_term_of_the_next_epoch(
    mirror: StoredLog, old: StoredLog
) -> None:
    (mirror.paths.own / LAST_WORD).parent.mkdir(exist_ok=True)
    write_mirror_report(mirror.paths.own / LAST_WORD, report(source_index=310))

    promotion, told = promote_mirror(mirror.settings)

    assert (promotion.index, promotion.end) == (299, old.end.position)
    assert (promotion.entry_term, promotion.chain) == (7, old.end.chain)
    assert told is not None and told["source_index"] == 310
    assert read_promotion(mirror.paths.own / FILE) == promotion
    check_mirror_mark(mirror.settings)
    started = TermFile(mirror.paths.term, mirror.paths.current_term)
    assert started.state.term == promotion.term and started.state.vote is None
    assert epoch_of(started.state.term) == 1
    started.close()


def test_a_promoted_store_begins_alone(mirror: StoredLog) -> None:
    own, other = "n0-10.0.0.1:40911", "n1-10.0.0.2:40911"
    alone, group = (
        replace(mirror.settings, node=replace(mirror.settings.node, peers=peers))
        for peers in ((own,), (own, other))
    )
    check_begins_alone(group)
    promotion, _ = promote_mirror(mirror.settings)

    check_begins_alone(alone)
    check_begins_alone(mirror.settings)
    with pytest.raises(ConfigError, match="begins alone"):
        check_begins_alone(group)
    started = TermFile(mirror.paths.term, mirror.paths.current_term)
    with pytest.raises(ConfigError, match="begins alone"):
        check_begins_alone(group)
    started.persist(HardState(Term(promotion.term + 1), NodeId("n0")))
    started.close()
    check_begins_alone(group)


def test_a_store_is_promoted_once(mirror: StoredLog) -> None:
    promote_mirror(mirror.settings)

    with pytest.raises(ConfigError, match="no mirror's"):
        promote_mirror(mirror.settings)


def test_a_promotion_that_was_killed_before_its_end_is_done_again(mirror: StoredLog) -> None:
    mark = mirror_mark_path(mirror.settings)
    content = mark.read_bytes()
    first, _ = promote_mirror(mirror.settings)
    mark.write_bytes(content)

    again, _ = promote_mirror(mirror.settings)

    assert again.index == first.index and epoch_of(again.term) == 1


@pytest.mark.slow
def test_a_promotion_that_is_killed_at_any_moment_is_none_or_is_done_again(
    mirror: StoredLog, old: StoredLog, tmp_path: Path
) -> None:
    root = mirror.paths.root
    template = root.rename(tmp_path / "template")
    copy(template, root)
    _, calls = in_child(lambda: promote_here(mirror), kill_at=None)
    for number in range(KILLS):
        copy(template, root)
        # The last calls are those that make the group.
        ended, _ = in_child(lambda: promote_here(mirror), kill_at=calls - KILLS + number)
        assert not ended
        if mirror_mark_path(mirror.settings).exists():
            check_mirror_mark(mirror_of(mirror.settings))
            promote_here(mirror)
        check_mirror_mark(mirror.settings)
        assert read_promotion(mirror.paths.own / FILE).end == old.end.position
        started = TermFile(mirror.paths.term, mirror.paths.current_term)
        assert epoch_of(started.state.term) == 1
        started.close()


def promote_here(mirror: StoredLog) -> None:
    promote_mirror(mirror.settings)


def test_a_mirror_that_has_nothing_becomes_no_group(tmp_path: Path) -> None:
    made = StoredLog(tmp_path / "empty", "n0")
    made.writer.close()
    shutil.rmtree(made.paths.data.parent)
    made.paths.own.mkdir(parents=True, exist_ok=True)
    check_mirror_mark(mirror_of(made.settings))

    with pytest.raises(ConfigError, match="nothing"):
        promote_mirror(made.settings)

    assert mirror_mark_path(made.settings).exists()


def reader_of(log: StoredLog) -> LogReader:
    return LogReader(open_directory(log.paths.root, self_id=NodeId("n0")))


def test_what_the_old_log_had_more_is_listed_queue_by_queue(
    mirror: StoredLog, old: StoredLog
) -> None:
    promotion, _ = promote_mirror(mirror.settings)
    old.put(50, term=7)
    assert old.paths.dledger_checkpoint is not None
    checkpoint = DLedgerCheckpoint(old.end.index_, old.end.index_)
    old.paths.dledger_checkpoint.write_bytes(encode_dledger_checkpoint(checkpoint))
    old.put(20, term=8)
    reader = reader_of(old)

    missing = missing_behind(reader, copy_end(promotion))

    assert missing.queues == [MissingQueue(QueueName("orders", 0), 300, 369, 70, 20)]
    assert (missing.begin, missing.end) == (promotion.end, old.end.position)
    reader.close()


def test_of_a_member_that_was_behind_nothing_is_missing_for_certain(
    mirror: StoredLog, tmp_path: Path
) -> None:
    promotion, _ = promote_mirror(mirror.settings)
    behind = StoredLog(tmp_path / "behind", "n0")
    behind.put(200, term=7)
    assert behind.paths.dledger_checkpoint is not None
    checkpoint = DLedgerCheckpoint(behind.end.index_, behind.end.index_)
    behind.paths.dledger_checkpoint.write_bytes(encode_dledger_checkpoint(checkpoint))
    committed = behind.end.position
    behind.put(150, term=6)
    reader = reader_of(behind)

    missing = missing_behind(reader, common_end(reader, copy_end(promotion)))

    assert missing.begin == committed
    assert missing.queues == [MissingQueue(QueueName("orders", 0), 200, 349, 150, 150)]
    reader.close()


def test_the_last_word_is_of_a_process_that_a_source_has_answered() -> None:
    first, second = report(at_ms=5), report(at_ms=9)
    deaf = report(at_ms=20, silent_s=None)

    assert latest_word(first, second, deaf) == second == latest_word(second, None, first)
    assert latest_word(deaf, None) is None


def test_nothing_is_missing_of_a_log_that_ends_with_the_copy(
    mirror: StoredLog, old: StoredLog
) -> None:
    promotion, _ = promote_mirror(mirror.settings)
    reader = reader_of(old)

    assert missing_behind(reader, copy_end(promotion)).queues == []
    reader.close()


@pytest.mark.parametrize(
    "change", [{"term": Term(6)}, {"index_": 298}, {"chain": 1}, {"end": 2**40}]
)
def test_of_another_log_nothing_is_said(
    mirror: StoredLog, old: StoredLog, change: dict[str, int]
) -> None:
    promotion, _ = promote_mirror(mirror.settings)
    old.put(10, term=7)
    reader = reader_of(old)

    with pytest.raises(ConfigError, match=r"the copy is none|another one"):
        missing_behind(reader, copy_end(promotion)._replace(**change))
    reader.close()
