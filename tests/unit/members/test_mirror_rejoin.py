"""Stores of groups that were left: cut where the copy ended, what was cut kept, and marked."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.conversion.missing_messages import MissingQueue, missing_behind
from ledgermq.members.mirrors import mirror_promotion
from ledgermq.members.mirrors.mirror_mark import check_mirror_mark
from ledgermq.members.mirrors.mirror_promotion import (
    LISTING,
    Rejoin,
    carry_out_rejoin,
    copy_end,
    plan_rejoin,
    promote_mirror,
)
from ledgermq.members.mirrors.promotion_note import Promotion
from ledgermq.model.config.settings import MirrorSection, NodeSection, Settings
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import NodeId
from ledgermq.model.names.queue_name import QueueName
from ledgermq.repair.rebuild import rebuild
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    ends_path,
    read_queue_ends,
    write_queue_ends,
)
from ledgermq.store.recovery.stopped_log import recover_stopped
from ledgermq.store.state_mark import read_state_mark
from ledgermq.store.store_directory import open_directory
from ledgermq.store.store_view import StoreView
from tests.unit.conversion.killed_conversion import copy, in_child
from tests.unit.raft_node.mirror_pair import Copy, Source, StoredLog, sources_made

ORDERS = (b"orders", 0)
KILLS = 16


def mirror_of(settings: Settings) -> Settings:
    section = MirrorSection(sources=("https://10.0.0.1:9464",), token_file=Path("/token"))
    return replace(settings, mirror=section)


def small(log: StoredLog) -> Settings:
    """Its settings, with small queues and indexes."""
    store = replace(
        log.settings.store, mapped_file_size_consume_queue=20_000, max_hash_slot_num=500,
        max_index_num=400,
    )  # fmt: skip
    return replace(log.settings, store=store)


class Site:
    """The log of a group, 300 messages of which a mirror has copied and was promoted."""

    def __init__(self, folder: Path) -> None:
        self.log = StoredLog(folder / "old", "n0")
        self.log.put(300, term=7)
        self.mirror = StoredLog(folder / "mirror", "n0")
        self.mirror.writer.close()
        shutil.rmtree(self.mirror.paths.root)
        self.mirror.paths.own.mkdir(parents=True)
        check_mirror_mark(mirror_of(self.mirror.settings))
        shutil.copytree(self.log.paths.data.parent, self.mirror.paths.data.parent)
        self.promotion: Promotion = promote_mirror(self.mirror.settings)[0]
        self.settings = small(self.log)

    def commit(self) -> None:
        """All that the old log has is committed."""
        note = self.log.paths.dledger_checkpoint
        assert note is not None
        last = self.log.end.index_
        note.write_bytes(encode_dledger_checkpoint(DLedgerCheckpoint(last, last)))

    def stop(self) -> None:
        """Queues and tables are there, of all that the old log has."""
        self.log.writer.close()
        paths = self.log.paths
        rebuild(open_directory(paths.root, self_id=self.settings.node.self_id), self.settings.store)
        paths.own.mkdir(exist_ok=True)
        ends = {ORDERS: self.log.end.index_ + 1, (b"fresh", 1): 4}
        write_queue_ends(ends_path(paths.root), QueueEnds(self.log.end.position, ends))
        paths.topics.parent.mkdir(exist_ok=True)
        for path in (
            paths.topics,
            paths.topics.with_name("topics.json.bak"),
            paths.topics.with_name("lmqConsumerOffset.json"),
        ):
            path.write_text(json.dumps({"ledgermqApplied": 9}))
        for name in ("access.json", "members", "identity", "peers"):
            (paths.own / name).write_text("of the old group")

    def rejoin(self) -> Rejoin:
        plan = plan_rejoin(self.settings, self.promotion)
        carry_out_rejoin(self.settings, plan)
        return plan


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def messages_in(root: Path) -> int:
    view = StoreView(root)
    try:
        return sum(1 for _ in view.messages(None, None))
    finally:
        view.close()


def test_a_store_that_rejoins_has_the_log_of_the_copy_and_keeps_what_it_had_more(
    site: Site,
) -> None:
    site.log.put(50, term=7)
    site.commit()
    site.log.put(500, term=8)
    site.stop()
    before = site.log.content()

    plan = site.rejoin()

    paths = site.log.paths
    assert plan.missing.queues == [MissingQueue(QueueName("orders", 0), 300, 849, 550, 500)]
    assert site.log.content() == site.mirror.content()
    _, end = recover_stopped(paths.root, paths.data.parent, progress=lambda _done, _total: None)
    assert (end.position, end.index_) == (site.promotion.end, site.promotion.index)
    assert messages_in(paths.root) == 300
    found = dispatch_checkpoint.read(paths.dispatch_checkpoint)
    assert found is not None and found.position <= site.promotion.end
    assert read_state_mark(paths.state_mark) == 0
    check_mirror_mark(mirror_of(site.settings))
    with pytest.raises(ConfigError, match="mirror promote"):
        check_mirror_mark(site.settings)

    kept = LogReader(open_directory(plan.aside))
    assert missing_behind(kept, copy_end(site.promotion)) == plan.missing
    kept.close()
    aside = plan.aside / paths.data.parent.name / "data"
    for path in aside.iterdir():
        assert path.read_bytes().rstrip(b"\0") == before[path.name]
        assert path.stat().st_mode & 0o007 == 0


def test_tables_and_ends_count_nothing_that_was_cut(site: Site) -> None:
    site.log.put(20, term=7)
    site.commit()
    site.stop()

    plan = site.rejoin()

    paths = site.log.paths
    ends = read_queue_ends(ends_path(paths.root))
    assert ends is not None and ends.position == site.promotion.end
    assert ends.ends == {ORDERS: 300, (b"fresh", 1): 4}
    assert not any(paths.topics.parent.iterdir())
    for name in ("access.json", "members", "identity", "peers"):
        assert not (paths.own / name).exists()
        assert (plan.aside / "ledgermq" / name).read_text() == "of the old group"
    assert (plan.aside / "config" / "topics.json.bak").exists()
    # It would count where the table's usual file is gone.
    assert (plan.aside / "config" / "lmqConsumerOffset.json").exists()
    assert not paths.topics.with_name("lmqConsumerOffset.json").exists()


def test_a_store_with_nothing_more_than_the_copy_becomes_a_mirror_all_the_same(
    site: Site,
) -> None:
    site.commit()
    site.stop()

    plan = site.rejoin()

    assert plan.missing.queues == []
    assert site.log.content() == site.mirror.content()
    check_mirror_mark(mirror_of(site.settings))


def test_a_member_that_was_behind_the_copy_keeps_what_it_knows_as_committed(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    behind = StoredLog(tmp_path / "behind", "n1")
    behind.put(200, term=7)
    site.log, site.settings = behind, small(behind)
    site.commit()
    committed = behind.end
    # Of a leader whom nobody followed.
    behind.put(300, term=9)
    site.stop()

    plan = site.rejoin()

    assert plan.kept.end == committed.position and plan.kept.index_ == 199
    assert plan.missing.queues == [MissingQueue(QueueName("orders", 0), 200, 499, 300, 300)]
    assert messages_in(behind.paths.root) == 200


class Twins(Site):
    """Two mirrors of one group, both promoted; the one with the lesser term had copied less.

    Its store is that of ``log`` and ``settings``.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mirror_promotion.secrets, "randbelow", lambda _count: 900)
        super().__init__(folder)
        lesser = StoredLog(folder / "lesser", "n0")
        lesser.put(200, term=7)
        check = lesser.settings
        lesser.writer.close()
        moved = lesser.paths.data.parent.rename(folder / "moved")
        check_mirror_mark(mirror_of(check))
        moved.rename(lesser.paths.data.parent)
        monkeypatch.setattr(mirror_promotion.secrets, "randbelow", lambda _count: 500)
        self.lesser, _ = promote_mirror(check)
        self.log = StoredLog(folder / "lesser", "n0")
        self.settings = small(self.log)
        self.log.put(60, term=self.lesser.term + 1)
        self.commit()
        self.stop()


def test_of_two_promoted_mirrors_the_lesser_one_goes_back_to_what_both_had_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Twins(tmp_path, monkeypatch)

    plan = site.rejoin()

    assert plan.kept == copy_end(site.lesser)
    assert plan.missing.queues == [MissingQueue(QueueName("orders", 0), 200, 259, 60, 0)]
    assert messages_in(site.log.paths.root) == 200


def test_what_a_group_of_another_promotion_has_committed_counts_for_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Twins(tmp_path, monkeypatch)
    (site.log.paths.own / "promoted").unlink()

    with pytest.raises(ConfigError, match="does not have the place"):
        plan_rejoin(site.settings, site.promotion)


def test_another_log_is_left_as_it_is(tmp_path: Path) -> None:
    site = Site(tmp_path)
    other = StoredLog(tmp_path / "other", "n1")
    other.put(400, term=6)
    site.log, site.settings = other, small(other)
    site.commit()
    site.stop()
    before = other.content()

    with pytest.raises(ConfigError, match="the copy is none of it"):
        plan_rejoin(site.settings, site.promotion)

    assert other.content() == before


def test_the_promoted_store_does_not_rejoin_by_its_own_promotion(site: Site) -> None:
    with pytest.raises(ConfigError, match="is of the group that was promoted"):
        plan_rejoin(site.mirror.settings, site.promotion)


def test_a_store_of_another_group_does_not_rejoin(site: Site) -> None:
    with pytest.raises(ConfigError, match="another group"):
        plan_rejoin(site.settings, replace(site.promotion, group="other"))


def test_a_mirror_is_not_made_one_again(site: Site) -> None:
    site.stop()
    site.rejoin()

    with pytest.raises(ConfigError, match="already"):
        plan_rejoin(site.settings, site.promotion)


@pytest.mark.slow
def test_a_rejoined_log_goes_on_from_the_common_point_and_gets_only_what_differs(
    tmp_path: Path,
) -> None:
    old = StoredLog(tmp_path / "m0", "m0")
    old.put(300, term=7)
    promoted = Settings(
        node=NodeSection(self_id="n0"),
        store=replace(old.settings.store, path_root_dir=tmp_path / "n0"),
    )
    check_mirror_mark(mirror_of(promoted))
    shutil.copytree(old.paths.data.parent, StorePaths.of(promoted).data.parent)
    promotion, _ = promote_mirror(promoted)
    old.put(50, term=7)
    old.writer.close()
    carry_out_rejoin(small(old), plan_rejoin(small(old), promotion))
    source = Source(tmp_path, "n0")
    source.put(100, term=promotion.term + 1)
    source.commit()
    differs = source.end.position - promotion.end
    with sources_made(source):
        mirror = Copy(tmp_path, source.url)
        mirror.run_until(lambda: mirror.has_all(source), "the rejoined log to have all")
        status, _ = mirror.peers._feed.look(mirror.core.commit, mirror.end.position, 0.0)

        assert mirror.content() == source.content()
        # And who the source is, each time that it was asked.
        assert differs <= status.received < differs + 50_000 < promotion.end
        mirror.close()


@pytest.mark.long
@pytest.mark.slow
def test_a_rejoin_that_is_killed_goes_on_and_loses_nothing(site: Site, tmp_path: Path) -> None:
    site.log.put(550, term=7)
    site.commit()
    site.stop()
    wanted = missing_of(site)
    template = site.log.paths.root.rename(tmp_path / "template")
    root = site.log.paths.root
    copy(template, root)
    _, calls = in_child(lambda: rejoin_here(site), kill_at=None)
    outcomes: set[str] = set()
    for number in range(KILLS):
        copy(template, root)
        ended, _ = in_child(lambda: rejoin_here(site), kill_at=number * calls // KILLS)
        assert not ended
        outcomes.add(opened_as(site))
        if number % 2:
            in_child(lambda: rejoin_unless_done(site), kill_at=(number * 7) % 40)
        if opened_as(site) != "mirror":
            in_child(lambda: rejoin_here(site), kill_at=None)
        assert opened_as(site) == "mirror"
        assert site.log.content() == site.mirror.content()
        assert messages_in(root) == 300
        listed = [json.loads((one / LISTING).read_text().split("\n")[0]) for one in asides(root)]
        assert [["orders", 0, *wanted[1:]]] in [one["queues"] for one in listed]
    assert outcomes >= {"group", "nothing"}


def rejoin_here(site: Site) -> None:
    carry_out_rejoin(site.settings, plan_rejoin(site.settings, site.promotion))


def rejoin_unless_done(site: Site) -> None:
    if opened_as(site) != "mirror":
        rejoin_here(site)


def missing_of(site: Site) -> MissingQueue:
    reader = LogReader(open_directory(site.log.paths.root, self_id=NodeId("n0")))
    (queue,) = missing_behind(reader, copy_end(site.promotion)).queues
    reader.close()
    return queue


def asides(root: Path) -> list[Path]:
    """Folders of what was cut."""
    return [one for one in (root / "ledgermq" / "set-aside").iterdir() if one.suffix == ""]


def opened_as(site: Site) -> str:
    """What a start would take the store for."""
    found = []
    for name, settings in (("group", site.settings), ("mirror", mirror_of(site.settings))):
        try:
            check_mirror_mark(settings)
            found.append(name)
        except ConfigError:
            pass
    return " ".join(found) or "nothing"
