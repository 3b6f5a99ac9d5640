"""Pieces lose what is beyond its topic's age, and nothing else, whoever is killed when."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.model.errors import ConfigError, CorruptLogError, MessageUnknownError
from ledgermq.model.exit_status import EXIT_CONFIG
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.pipeline.pieces import piece_retention
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.piece_manifest import add_row, read_manifest, row_of
from ledgermq.pipeline.pieces.piece_places import PIECES, SealedFolder, SealedPlace, file_name
from ledgermq.pipeline.pieces.piece_repository import PieceRepository
from ledgermq.pipeline.pieces.piece_retention import Pruned, TopicAge, drop, expired_in
from ledgermq.pipeline.pieces.piece_seal import seal_stretch
from ledgermq.store.files.checked_document import decode_document, encode_document
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.small_store import write_store
from tests.unit.pipeline.made_logs import STORED_MS, MadeLog, Written, made_log
from tests.unit.pipeline.pieces_dying import left_by_deaths, steps_of
from tests.unit.pipeline.test_piece_places import ends_of

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
EACH = 8
"""Messages of a piece."""

PIECES_MADE = 5
TOPIC_NAMES = ("hour", "long", "once")
NOW_MS = STORED_MS + PIECES_MADE * EACH * HOUR_MS
Read = dict[tuple[str, int, int], bytes]


def some_log(*, entries: bool = True) -> MadeLog:
    """A message an hour: of a topic that is to go soon, and one that stays; in the first piece of
    one more.
    """
    return made_log(
        [
            Written(
                "once" if number == 2 else TOPIC_NAMES[number % 2],
                number % 4 // 2,
                b"body %d" % number * 9,
                f"KEYS\x01key-{number}".encode(),
                later_ms=HOUR_MS,
            )
            for number in range(PIECES_MADE * EACH)
        ],
        entries=entries,
    )


def seal_made(place: SealedPlace, log: MadeLog) -> None:
    """Seal a made log, some messages a piece."""
    view, begin = memoryview(log.content), 0
    for number in range(0, len(log.messages), EACH):
        last = log.messages[min(number + EACH, len(log.messages)) - 1]
        end = int(last.physical_offset) + last.size - log.base
        sealed = seal_stretch(
            *(view, begin, end),
            header_size=log.header_size,
            base=log.base,
            follows=log.base + begin if begin else -1,
            group_bytes=600,
        )
        place.put(f"{PIECES}/{file_name(sealed.footer.start, sealed.footer.end)}", sealed.parts)
        tail = sum(map(len, sealed.parts[3:]))
        add_row(place, row_of(sealed.footer, size=sealed.size, tail=tail))
        begin = end


@pytest.fixture(params=[True, False], ids=["entries", "plain"])
def log(request: pytest.FixtureRequest) -> MadeLog:
    return some_log(entries=request.param)


@pytest.fixture
def place(tmp_path: Path, log: MadeLog) -> SealedFolder:
    made = SealedFolder(tmp_path / "place")
    seal_made(made, log)
    return made


def hour_alone(topic: str) -> TopicAge:
    """Messages of ``hour`` stay for twelve hours, all others for ever."""
    return TopicAge(12 * HOUR_MS) if topic == "hour" else TopicAge()


def all_but_long(topic: str) -> TopicAge:
    return TopicAge() if topic == "long" else TopicAge(12 * HOUR_MS)


def everything(_topic: str) -> TopicAge:
    return TopicAge(12 * HOUR_MS)


def read_all(place: SealedPlace) -> Read:
    """Each message of each queue, from the first one that the pieces have."""
    queues = ColdQueues(place)
    found: Read = {}
    for name, bounds in queues.queues().items():
        at = bounds.first
        while at < bounds.end:
            try:
                for record in queues.read(name.topic, name.queue_id, at):
                    assert (name.topic, name.queue_id, at) not in found
                    found[name.topic, name.queue_id, at] = record.header + record.record
                    at += 1
            except MessageUnknownError as error:
                at = int(str(error.details["next"]))
    return found


def expected(log: MadeLog, age_of: Callable[[str], TopicAge]) -> Read:
    """What has to be there: pieces are whole but for topics of which all there is old."""
    found: Read = {}
    for first in range(0, len(log.messages), EACH):
        part = log.messages[first : first + EACH]
        for one in part:
            newest = max(other.store_timestamp for other in part if other.topic == one.topic)
            age = age_of(one.topic)
            is_last = first + EACH == len(log.messages)
            if is_last or not age.keep_ms or newest >= NOW_MS - age.keep_ms:
                found[one.topic, one.queue_id, int(one.queue_offset)] = log.record(one)
    return found


def drop_expired(place: SealedPlace, age_of: Callable[[str], TopicAge], *, now_ms: int) -> Pruned:
    """Drop what is beyond its topic's age."""
    return drop(place, lambda manifest: expired_in(manifest, age_of, now_ms=now_ms))


def prune(place: SealedPlace, age_of: Callable[[str], TopicAge] = hour_alone) -> Pruned:
    return drop_expired(place, age_of, now_ms=NOW_MS)


def verified(place: SealedPlace) -> int:
    """How many records all pieces have, after each byte of them was compared."""
    queues = ColdQueues(place, cache_bytes=0)
    return sum(queues.piece(row).verify() for row in queues.manifest.rows)


@pytest.mark.parametrize("age_of", [hour_alone, all_but_long, everything])
def test_what_is_beyond_its_age_goes_and_all_else_stays_byte_for_byte(
    place: SealedFolder, log: MadeLog, age_of: Callable[[str], TopicAge]
) -> None:
    before = read_all(place)
    found = prune(place, age_of)
    left = expected(log, age_of)

    assert read_all(place) == left
    assert verified(place) == len(left)
    gone = before.keys() - left.keys()
    assert dict(found.records) == {
        topic: sum(1 for one in gone if one[0] == topic) for topic in {one[0] for one in gone}
    }
    assert sum(found.log_bytes.values()) == sum(len(before[one]) for one in gone)
    assert found.freed > 0
    assert (found.dropped > 0) is (age_of is everything)
    # Each file there is named, and there is no other.
    files = {f"{PIECES}/{name}" for name in place.names(PIECES)}
    assert files == {row.name for row in read_manifest(place).rows}
    # There is nothing more to do; keys and times are found as ever.
    assert prune(place, age_of) == Pruned(0, 0, {}, {}, 0, 0)
    queues = ColdQueues(place)
    for number, one in enumerate(log.messages):
        key = one.topic, one.queue_id, int(one.queue_offset)
        with_key = [each.record for each in queues.with_key(one.topic, f"key-{number}")]
        assert with_key == ([left[key][log.header_size :]] if key in left else [])


def test_no_message_that_is_younger_goes_and_the_last_piece_is_as_it_was(
    place: SealedFolder, log: MadeLog
) -> None:
    manifest = read_manifest(place)
    for hours in range(0, PIECES_MADE * EACH + 2):
        now_ms = STORED_MS + hours * HOUR_MS
        for one in expired_in(manifest, everything, now_ms=now_ms):
            for topic in one.topics:
                newest = max(part.max_ms for part in one.row.queues[topic])
                assert newest < now_ms - 12 * HOUR_MS
    far = expired_in(manifest, everything, now_ms=1 << 60)
    assert [one.row for one in far] == list(manifest.rows[:-1])
    assert expired_in(manifest, lambda _topic: TopicAge(), now_ms=1 << 60) == []
    assert len(log.messages) == sum(row.facts.records for row in manifest.rows)


def test_by_bytes_newer_pieces_have_as_much_as_is_to_stay(
    place: SealedFolder, log: MadeLog
) -> None:
    sizes = [row.topic_bytes["long"] for row in read_manifest(place).rows]
    assert sum(sizes) == sum(len(log.record(one)) for one in log.messages if one.topic == "long")
    keep = sizes[-1] + sizes[-2] - 1
    drop_expired(place, lambda topic: TopicAge(0, keep if topic == "long" else 0), now_ms=STORED_MS)

    left = [row.topic_bytes.get("long", 0) for row in read_manifest(place).rows]
    assert left == [0, 0, 0, *sizes[-2:]]
    assert verified(place) == len(log.messages) - 3 * EACH // 2


def test_the_brokers_own_topic_stays(tmp_path: Path) -> None:
    place = SealedFolder(tmp_path)
    written = [
        Written((SYSTEM_TOPIC, "hour")[number % 2], 1, b"%d" % number) for number in range(16)
    ]
    seal_made(place, made_log(written))
    drop_expired(place, everything, now_ms=1 << 60)

    topics = [set(row.queues) for row in read_manifest(place).rows]
    assert topics == [{SYSTEM_TOPIC}, {SYSTEM_TOPIC, "hour"}]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("at_once", [1, 2, 64])
@pytest.mark.parametrize("age_of", [hour_alone, everything])
def test_a_run_that_dies_anywhere_loses_nothing_and_the_next_one_ends_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    age_of: Callable[[str], TopicAge],
    at_once: int,
) -> None:
    monkeypatch.setattr(piece_retention, "ROWS_AT_ONCE", at_once)
    log = some_log()
    sealed = SealedFolder(tmp_path / "sealed")
    seal_made(sealed, log)
    everything_sealed, left = read_all(sealed), expected(log, age_of)

    def check(place: SealedFolder) -> None:
        # What has to stay is there once, and what is there is whole.
        found = read_all(place)
        assert left.items() <= found.items() <= everything_sealed.items()
        assert verified(place) == len(found)

    steps = 0
    for steps, place in enumerate(
        left_by_deaths(tmp_path / "sealed", lambda place: prune(place, age_of), check), 1
    ):
        prune(place, age_of)
        assert read_all(place) == left, steps
        prune(place, age_of)
    pieces = len(expired_in(read_manifest(sealed), age_of, now_ms=NOW_MS))
    dropped = sum(row.end not in {one.end for one in read_manifest(place).rows}
                  for row in read_manifest(sealed).rows)  # fmt: skip
    assert pieces >= 3
    # The run's number; of each piece a file and the file before; and of some their rows.
    assert steps == 1 + 2 * pieces - dropped + -(-pieces // at_once)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("at_once", [1, 64])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_run_that_is_overtaken_anywhere_changes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, at_once: int
) -> None:
    """Another one begins before a change of it, and does all that is to be done."""
    monkeypatch.setattr(piece_retention, "ROWS_AT_ONCE", at_once)
    place, log = SealedFolder(tmp_path / "place"), some_log()
    seal_made(place, log)
    left = expected(log, hour_alone)
    count = 0

    def overtake() -> None:
        nonlocal count
        if count == step:
            count += 1
            prune(SealedFolder(Path(place.as_text())))
            # Both are told apart by what comes next, too.
            assert read_all(SealedFolder(Path(place.as_text()))) == left
        count += 1

    try:
        for _ in steps_of(place, overtake):
            prune(place)
    except ConfigError as error:
        assert "another run" in str(error)
    except CorruptLogError as error:
        # The other one has deleted what this one was about to read.
        assert "missing" in str(error)
    assert count > step
    again = SealedFolder(Path(place.as_text()))
    assert read_all(again) == left
    assert verified(again) == len(left)
    prune(again)
    assert read_all(again) == left


def test_a_put_whose_answer_was_lost_is_taken_and_what_another_run_put_is_not(
    place: SealedFolder, log: MadeLog
) -> None:
    put = place.put
    place.put = lambda name, parts: put(name, parts) and False  # type: ignore[method-assign]
    prune(place)
    assert read_all(place) == expected(log, hour_alone)
    # Under the next run's number, as one has left it behind which a manifest was made anew: that
    # run sweeps before it puts anything, but for what comes in between.
    row = next(row for row in read_manifest(place).rows if row.dropped)
    stranger = place.as_text(row.name.replace(".1.", ".2."))
    place.put = lambda name, _parts: (
        not shutil.copy(  # type: ignore[method-assign]
            place.as_text(row.name), place.as_text(name)
        )
    )
    with pytest.raises(ConfigError, match="another run"):
        prune(place, all_but_long)
    assert Path(stranger).exists()
    del place.put
    found = prune(place, all_but_long)
    assert found.swept > 0
    assert not Path(stranger).exists()
    assert read_all(place) == {
        key: one
        for key, one in expected(log, all_but_long).items()
        if key in expected(log, hour_alone)
    }
    assert verified(place) == len(read_all(place))


def test_sealing_and_dropping_at_once_do_each_other_no_harm(tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "place"
    store.mkdir()
    write_store(store, messages=20)
    sizes = SealSizes(piece_bytes=400, group_bytes=1)
    with closing(LogReader(open_directory(store))) as reader:
        seal_log(SealedFolder(folder), reader, ends_of(store)[9], sizes=sizes)
        place = SealedFolder(folder)

        def seal_more() -> None:
            seal_log(SealedFolder(folder), reader, reader.end, sizes=sizes)

        for _ in steps_of(place, seal_more):
            found = drop_expired(place, everything, now_ms=1 << 60)
        seal_more()
        drop_expired(SealedFolder(folder), everything, now_ms=1 << 60)
        manifest = read_manifest(SealedFolder(folder))
        assert manifest.end == reader.end
    assert found.dropped > 0
    assert len(manifest.rows) == 1
    assert [one.end for one in manifest.gone][-1] == manifest.rows[0].start
    assert SealedFolder(folder).names(PIECES) == [manifest.rows[0].name.removeprefix("pieces/")]


def test_a_restore_begins_behind_what_was_dropped(place: SealedFolder, log: MadeLog) -> None:
    prune(place, everything)
    repository = PieceRepository(place, None)
    whole = [row for row in read_manifest(place).rows if not row.dropped]

    (run,) = repository.runs()
    assert (run.start, run.end) == (whole[0].start, whole[-1].end)
    assert repository.follows(run.pieces[0]) == -1 or repository.follows(run.pieces[0]) == 0
    begin = run.start - log.base
    content = b"".join(bytes(repository.read_log(piece)) for piece in run.pieces)
    assert content == log.content[begin : begin + len(content)]


@pytest.mark.parametrize(
    "forged",
    [
        {"edition": 0},
        {"edition": "1"},
        {"gone": [[0, 9, 5]]},
        {"gone": [[1]]},
        {"ends": {"hour": [[-1, 5, 5]]}},
        {"ends": {"hour": [[0, 5]]}},
        {"ends": [1]},
        {"version": 3},
    ],
)
def test_a_manifest_that_says_what_cannot_be_is_refused(
    place: SealedFolder, forged: dict[str, object]
) -> None:
    prune(place, all_but_long)
    path = Path(place.as_text("manifest"))
    document = decode_document(path.read_bytes(), file="manifest")
    path.write_bytes(encode_document({**document, **forged}))
    with pytest.raises((CorruptLogError, ConfigError)) as raised:
        read_manifest(place)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("part", ["group", "rest", "filters", "footer", "trailer", "table"])
def test_a_flipped_byte_of_what_is_left_is_found(
    place: SealedFolder, log: MadeLog, part: str
) -> None:
    assert log.messages
    prune(place)
    row = next(row for row in read_manifest(place).rows if row.dropped)
    path = Path(place.as_text(row.name))
    whole = path.read_bytes()
    footer = ColdQueues(place).piece(row)
    places = {
        "group": footer.footer.groups[0].at + 3,
        "rest": footer.footer.rest.at,
        "filters": footer.footer.filters.at,
        "footer": footer.end.footer.at + 2,
        "trailer": footer.end.table.at - 9,
        "table": footer.end.table.at + 5,
    }
    at = places[part]
    path.write_bytes(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
    with pytest.raises((CorruptLogError, ConfigError)) as raised:
        verified(place)
    assert str(path) in str(raised.value)


def test_the_command_drops_by_rules_and_says_what_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, place = tmp_path / "store", str(tmp_path / "place")
    store.mkdir()
    write_store(store, messages=10)
    assert main(["piece", "seal", str(store), "--to", place]) == 0
    pieces = len(read_manifest(SealedFolder(Path(place))).rows)
    assert pieces == 4

    def told(*words: str) -> object:
        capsys.readouterr()
        assert main(["piece", "prune", place, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    # Its clock says later by years, which nothing confirms: age is reckoned from the newest one.
    assert told("--keep", "*=1y", "--dry-run") == []
    plan = told("--keep", "ord*=500ms", "--keep", "*=1y", "--dry-run")
    assert isinstance(plan, list)
    assert len(plan) == pieces - 1
    found = told("--keep", "ord*=500ms", "--keep", "*=1y")
    assert isinstance(found, dict)
    assert (found["dropped"], found["rewritten"]) == (pieces - 1, 0)
    assert found["records"]["orders"] == sum(one["messages"] for one in plan)
    assert main(["piece", "verify", place]) == 0
    for wrong in ("orders", "orders=soon", "o*s=1d", f"{SYSTEM_TOPIC}=1d", "=1d"):
        assert main(["piece", "prune", place, "--keep", wrong]) == EXIT_CONFIG
    # Nobody has said how old topics get.
    capsys.readouterr()
    assert main(["piece", "prune", place]) != 0
    assert "no snapshot" in capsys.readouterr().err
