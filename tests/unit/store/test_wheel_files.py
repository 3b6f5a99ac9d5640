"""RocketMQ 5's timer wheel as files: what is set aside, and the timer log that is handed back."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest

from ledgermq.formats.timer_wheel import SLOT_MS, TimerCheck, WheelEntry, timer_log
from ledgermq.store.wheel_files import Handed, WheelFiles
from tests.conftest import Golden

UNIT = Struct(">iqiqiqiiq")
NOW_MS = 1_795_949_216_000
HOUR_MS = 3_600_000
SIZE = 52 * 4
"""Room for three units and the blank behind them."""


def units(root: Path) -> list[tuple[int, ...]]:
    """The units of a timer log, each with the position where it stands before it."""
    found = []
    for path in sorted((root / "timerlog").iterdir()):
        content = path.read_bytes()
        for at in range(0, len(content) - UNIT.size + 1, UNIT.size):
            unit = UNIT.unpack_from(content, at)
            if unit[0] != UNIT.size or unit[2] != 1:
                break
            found.append((int(path.name) + at, *unit))
    return found


def test_units_of_one_second_are_a_chain_over_files_and_the_last_unit_points_nowhere(
    tmp_path: Path,
) -> None:
    (tmp_path / "ledgermq").mkdir()
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / f"{0:020d}").write_bytes(bytes(SIZE))
    due = NOW_MS + HOUR_MS
    entries = [WheelEntry(due + number, 1_000 * number, 300, "timer") for number in range(3)]
    entries.append(WheelEntry(NOW_MS - HOUR_MS, 9_000, 300, "timer"))
    files = WheelFiles(tmp_path)
    files.set_aside(7)
    size = files.hand(entries, now_ms=NOW_MS, ends=(7, 5))
    found = units(tmp_path)

    assert size == SIZE
    assert {path.stat().st_size for path in (tmp_path / "timerlog").iterdir()} == {SIZE}
    assert [row[0] for row in found] == [0, 52, 104, SIZE, SIZE + 52]
    # When it is due, and which stands before it in that second.
    assert [(row[4] + row[5] - NOW_MS, row[2]) for row in found] == [
        (SLOT_MS, -1),
        (HOUR_MS, -1),
        (HOUR_MS, 52),
        (HOUR_MS, 104),
        (-SLOT_MS, -1),
    ]
    assert [row[6] for row in found][:4] == [9_000, 0, 1_000, 2_000]
    assert found[-1][6] == 1 << 62
    assert files.check() == TimerCheck(NOW_MS, 0, 7, 7)
    assert files.handed() == Handed(NOW_MS, NOW_MS + 7 * 24 * HOUR_MS, 5)


def test_a_unit_is_written_as_rocketmq_has_written_it(golden: Golden) -> None:
    theirs = units(golden("p551"))[2]
    at_ms = theirs[4]
    entry = WheelEntry(at_ms + theirs[5], theirs[6], theirs[7], "timer")
    (ours,) = timer_log([entry], now_ms=at_ms, file_size=104_000)

    assert UNIT.unpack_from(ours) == theirs[1:]


@pytest.mark.parametrize("dies_after", ["timerlog", "timerwheel"])
def test_setting_aside_goes_on_where_it_was_cut(golden_copy: Golden, dies_after: str) -> None:
    root = golden_copy("p551")
    aside = root / "ledgermq" / "rocketmq-wheel"
    aside.mkdir(parents=True)
    changed_ns = (root / "config" / "timercheck").stat().st_mtime_ns
    for name in ("timerlog", "timerwheel"):
        (root / name).rename(aside / name)
        if name == dies_after:
            break
    WheelFiles(root).set_aside(5)

    assert {path.name for path in aside.iterdir()} == {"timerlog", "timerwheel"}
    assert WheelFiles(root).check() == TimerCheck(NOW_MS, 0, 5, 5)
    assert (root / "config" / "timercheck").stat().st_mtime_ns == changed_ns
