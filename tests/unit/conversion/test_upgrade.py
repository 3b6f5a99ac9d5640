"""An upgrade leaves what RocketMQ leaves at its first start with DLedger; an undo, what was."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.cli.arguments import add_size_options
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.conversion.conversion_journal import ConversionKind, Phase, read_journal
from ledgermq.conversion.upgrade import Upgrade, undo_upgrade, upgrade
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.store.recovery import log_checkpoint
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, mark_damage
from ledgermq.store.recovery.stopped_log import recover_stopped
from ledgermq.store.store_view import StoreView
from tests.conftest import Golden

LOG = "commitlog/00000000000000000000"
DIVIDED = 1_048_576
MEMBER = NodeId("n1")


def section(root: Path) -> StoreSection:
    parser = argparse.ArgumentParser()
    add_size_options(parser)
    return store_section(parser.parse_args([]), root, LogKind.COMMITLOG)


def upgraded(root: Path, *, self_id: NodeId = MEMBER) -> Upgrade:
    return upgrade(root, section(root), group="g", self_id=self_id, progress=lambda *_: None)


def test_the_old_log_is_that_which_rocketmq_made_of_it(golden: Golden, golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    done = upgraded(root)

    assert (root / LOG).read_bytes() == (golden("gu0") / LOG).read_bytes()
    assert (done.end, done.divided, done.blank_size) == (964_020, DIVIDED, DIVIDED - 964_020)
    files = list((root / "dledger-n1" / "data").iterdir())
    assert [file.name for file in files] == [f"{DIVIDED:020d}"]
    assert files[0].read_bytes() == bytes(DIVIDED)


def test_all_messages_stay_where_they_were(golden: Golden, golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    upgraded(root)
    with closing(StoreView(golden("gs1"))) as before, closing(StoreView(root)) as now:
        assert [m.message for m in now.messages()] == [m.message for m in before.messages()]
        assert now.directory.divided == DIVIDED
        assert now.log.end == DIVIDED


def test_what_a_crash_left_is_recovered_first(golden: Golden, golden_copy: Golden) -> None:
    root = golden_copy("gs1.live")
    with (root / LOG).open("r+b") as file:
        end = len(file.read().rstrip(b"\0"))
        file.seek(end + 1)
        file.write(b"torn")
    (root / "abort").touch()
    upgraded(root)
    with closing(StoreView(root)) as now:
        count = sum(1 for _ in now.messages())

    assert not (root / "abort").exists()
    assert count > 0
    assert b"torn" not in (root / LOG).read_bytes()[end:]


def test_what_made_the_node_itself_is_set_aside_and_comes_back(golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    (root / "ledgermq").mkdir()
    (root / "ledgermq" / "identity").write_bytes(b"of the plain node")
    upgraded(root)
    (root / "ledgermq" / "identity").write_bytes(b"of the member")
    undo_upgrade(root)

    assert (root / "ledgermq" / "identity").read_bytes() == b"of the plain node"


def test_a_file_that_was_made_ahead_gives_way_to_the_new_log(golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    ahead = root / "commitlog" / f"{DIVIDED:020d}"
    ahead.write_bytes(bytes(DIVIDED))
    upgraded(root)

    assert not ahead.exists()

    undo_upgrade(root)

    assert ahead.read_bytes() == bytes(DIVIDED)


def test_an_undo_gives_back_every_byte(golden: Golden, golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    upgraded(root)
    undo_upgrade(root)
    names = {path.name for path in root.iterdir()}

    assert (root / LOG).read_bytes() == (golden("gs1") / LOG).read_bytes()
    assert names - {"ledgermq"} == {path.name for path in golden("gs1").iterdir()}
    assert read_journal(root) is None


def test_an_upgrade_cannot_be_undone_once_there_are_entries(
    golden: Golden, golden_copy: Golden
) -> None:
    root = golden_copy("gs1")
    upgraded(root)
    data = Path("data", f"{DIVIDED:020d}")
    written = (golden("gu0") / "dledger-n0" / data).read_bytes()
    (root / "dledger-n1" / data).write_bytes(written)

    with pytest.raises(ConfigError, match="ledgermq store downgrade"):
        undo_upgrade(root)


def test_a_second_upgrade_is_refused(golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    upgraded(root)
    found = read_journal(root)

    assert found is not None
    assert (found.kind, found.phase) == (ConversionKind.UPGRADE, Phase.SWITCHED)
    with pytest.raises(ConfigError, match="--finish"):
        upgraded(root)


@pytest.mark.parametrize("name", ["gd0", "gu0"])
def test_a_dledger_store_is_refused(name: str, golden_copy: Golden) -> None:
    root = golden_copy(name)

    with pytest.raises(ConfigError, match="DLedger log already"):
        upgraded(root)
    assert read_journal(root) is None


def test_a_store_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs no upgrade"):
        upgraded(tmp_path)


def test_what_was_begun_with_other_names_is_not_gone_on_with(
    golden_copy: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_copy("gs1")
    (root / "ledgermq").mkdir()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ledgermq.conversion.conversion_journal._patch", die)
        with pytest.raises(KeyboardInterrupt):
            upgraded(root)

    with pytest.raises(ConfigError, match="other names"):
        upgraded(root, self_id=NodeId("n2"))
    assert upgraded(root).self_id == MEMBER


def test_an_upgraded_log_is_recovered_by_its_checkpoint(golden_copy: Golden) -> None:
    """The entry before its first one, where a scan may begin, ends at the division, not at 0."""
    root = golden_copy("gu0")
    _, end = recover_stopped(root, root / "dledger-n0", progress=lambda *_: None)
    (root / "ledgermq").mkdir()
    noted = log_checkpoint.encode(LogCheckpoint(end, DIVIDED))
    (root / "ledgermq" / "log-checkpoint").write_bytes(noted)

    assert recover_stopped(root, root / "dledger-n0", progress=lambda *_: None) == (DIVIDED, end)


def test_a_store_that_lacks_what_it_once_had_is_refused(golden_copy: Golden) -> None:
    root = golden_copy("gs1")
    (root / "ledgermq").mkdir()
    damage = LogDamage(Position(7), "x", "magic", Position(9), Index(9), Term(0))
    mark_damage(damage_path(root), damage)

    with pytest.raises(CorruptLogError, match="once had"):
        upgraded(root)
