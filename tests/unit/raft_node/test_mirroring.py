"""A mirror's log: the bytes of its source, over HTTP; resumed; refused where they do not fit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.members.mirrors.mirror_promotion import LAST_WORD
from ledgermq.members.mirrors.mirror_report import MirrorReport, read_mirror_report
from ledgermq.members.roster import MIRROR_SOURCE
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.raft.messages import Append, EntryId
from ledgermq.raft_node.mirroring import source_feed
from ledgermq.raft_node.mirroring.mirror_lag import WORDS_MAX, MirrorLag
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    ends_path,
    read_queue_ends,
    write_queue_ends,
)
from tests.unit.raft_node.mirror_pair import (
    copy_of,
    source_of,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_a_mirror_has_the_bytes_of_its_source(tmp_path: Path, stack: ExitStack) -> None:
    source = source_of(stack, tmp_path)
    source.put(500, term=1)
    source.put(300, term=4)
    source.commit()
    mirror = copy_of(stack, tmp_path, source)

    mirror.run_until(lambda: mirror.has_all(source), "all of the log")
    source.put(200, term=4)
    source.commit()
    mirror.run_until(lambda: mirror.has_all(source), "what came later")

    assert mirror.content() == source.content()
    assert mirror.end == source.end
    assert mirror.core.term == 4 and not mirror.core.granted


def test_a_mirror_in_a_greater_term_than_its_sources_last_entry_gets_it_all_the_same(
    tmp_path: Path, stack: ExitStack
) -> None:
    source = source_of(stack, tmp_path)
    source.put(200, term=7)
    source.commit()
    mirror = copy_of(stack, tmp_path, source)
    # As its term file would say that begins: nobody has told the feed.
    mirror.core.receive(
        0, MIRROR_SOURCE, Append(Term(9), EntryId(Term(9), Index(9)), (), NO_INDEX, 0)
    )

    mirror.run_until(lambda: mirror.has_all(source), "all of the log")

    assert mirror.content() == source.content() and mirror.core.term == 9


def test_what_is_not_committed_at_the_source_does_not_come(
    tmp_path: Path, stack: ExitStack
) -> None:
    source = source_of(stack, tmp_path)
    source.put(100, term=1)
    source.commit()
    committed = source.end
    source.put(100, term=1)
    mirror = copy_of(stack, tmp_path, source)

    mirror.run_until(lambda: mirror.core.commit == committed.index_, "what is committed")
    mirror.run_until(lambda: mirror.peers.absent == (), "another word of the source")

    assert mirror.end == committed


def test_a_mirror_goes_on_where_its_own_log_ends(tmp_path: Path, stack: ExitStack) -> None:
    source = source_of(stack, tmp_path)
    source.put(1_000, term=2)
    source.commit()
    with ExitStack() as before:
        first = copy_of(before, tmp_path, source)
        first.run_until(lambda: first.has_all(source), "all of the log")
    source.put(100, term=3)
    source.commit()

    second = copy_of(stack, tmp_path, source)
    second.run_until(lambda: second.has_all(source), "what was missing")
    status, _ = second.peers._feed.look(second.core.commit, Position(0), 0.0)

    assert second.content() == source.content()
    # A tenth of it, and answers that say only how far the source is.
    assert status.received < 300_000


def test_that_a_member_without_leader_has_no_more_does_not_say_that_there_is_no_more(
    tmp_path: Path, stack: ExitStack
) -> None:
    deaf = source_of(stack, tmp_path, "n1", hears=False)
    deaf.put(200, term=1)
    deaf.commit()
    mirror = copy_of(stack, tmp_path, deaf)

    mirror.run_until(lambda: mirror.has_all(deaf), "what it has")
    mirror.run_until(lambda: mirror.peers.absent == (), "another word of it")
    lag = mirror.peers._feed.look(mirror.core.commit, mirror.end.position, time.monotonic())[1]

    assert (lag.messages, lag.seconds) == (0, None)
    assert lag.silent_s is not None


def test_a_mirror_of_another_log_is_told_so_and_keeps_what_it_has(
    tmp_path: Path, stack: ExitStack
) -> None:
    source, other = source_of(stack, tmp_path, "n0"), source_of(stack, tmp_path, "n1")
    for member, term in ((source, 1), (other, 2)):
        member.put(100, term=term)
        member.commit()
    with ExitStack() as before:
        mirror = copy_of(before, tmp_path, source)
        mirror.run_until(lambda: mirror.has_all(source), "all of the log")
        held = mirror.content()
    other.put(100, term=2)
    other.commit()

    mirror = copy_of(stack, tmp_path, other)
    mirror.run_until(lambda: "another entry" in str(mirror.peers.refusals), "the refusal")

    assert mirror.content() == held


def test_another_group_is_no_source(tmp_path: Path, stack: ExitStack) -> None:
    source = source_of(stack, tmp_path)
    source.put(10, term=1)
    source.commit()
    mirror = copy_of(stack, tmp_path, source)
    own = mirror.settings.node
    mirror.peers._settings = type(mirror.settings)(
        node=type(own)(self_id=own.self_id, group="broker-z"), store=mirror.settings.store
    )

    mirror.run_until(lambda: "another group" in str(mirror.peers.refusals), "the refusal")

    assert mirror.end.index_ == -1


@pytest.mark.long
def test_on_a_slow_line_no_file_is_sent_twice(tmp_path: Path, stack: ExitStack) -> None:
    source = source_of(stack, tmp_path, bytes_per_s=100_000)
    source.put(1_000, term=1)
    source.commit()
    files = sorted(source.paths.data.iterdir())
    files[0].unlink()
    source.paths.own.mkdir(exist_ok=True)
    write_queue_ends(
        ends_path(source.paths.root), QueueEnds(Position(int(files[1].name)), {(b"orders", 0): 300})
    )
    mirror = copy_of(stack, tmp_path, source)

    mirror.run_until(lambda: mirror.receiver.is_complete, "the files")

    offer = mirror.offers[-1]
    received = mirror.peers._feed.look(Index(0), Position(0), 0.0)[0].received
    assert received < 1.5 * (offer.end - offer.begin)


def test_files_come_where_the_beginning_of_the_log_is_gone(
    tmp_path: Path, stack: ExitStack
) -> None:
    source = source_of(stack, tmp_path)
    source.put(1_500, term=1)
    source.commit()
    files = sorted(source.paths.data.iterdir())
    for file in files[:2]:
        file.unlink()
    begin = int(files[2].name)
    (source.paths.root / "ledgermq").mkdir(exist_ok=True)
    ends = QueueEnds(Position(begin), {(b"orders", 0): 300})
    write_queue_ends(ends_path(source.paths.root), ends)
    mirror = copy_of(stack, tmp_path, source)

    mirror.run_until(lambda: mirror.receiver.is_complete, "the files")

    offer = mirror.offers[-1]
    assert (offer.begin, offer.has_ends, offer.members) == (begin, True, b"")
    shipped = {path.name: path.read_bytes() for path in (mirror.staged / "data").iterdir()}
    whole = [path for path in files[2:] if int(path.name) < offer.end]
    assert shipped == {path.name: path.read_bytes() for path in whole}
    assert read_queue_ends(mirror.staged / "queue-ends") == ends
    # The members of the log are not the mirror's.
    assert not (mirror.staged / "members").exists()


def test_a_report_says_how_far_the_mirror_is(tmp_path: Path, stack: ExitStack) -> None:
    source = source_of(stack, tmp_path)
    source.put(100, term=1)
    source.commit()
    mirror = copy_of(stack, tmp_path, source)

    def report() -> MirrorReport | None:
        found = read_mirror_report(mirror.runtime / "mirror")
        return found if found is not None and found["lag_s"] is not None else None

    mirror.run_until(lambda: mirror.has_all(source) and report() is not None, "a report")
    told = report()

    assert told is not None
    assert (told["source"], told["node"], told["leads"]) == (source.url, "n0", False)
    assert (told["lag_messages"], told["lag_bytes"], told["trouble"]) == (0, 0, "")
    assert told["source_position"] == source.end.position == told["held"]


def test_the_mark_is_told_when_much_has_come_and_now_and_then(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_feed, "MARK_S", 0.05)
    monkeypatch.setattr(source_feed, "IDLE_POLL_S", 0.05)
    source = source_of(stack, tmp_path)
    source.put(100, term=1)
    source.commit()
    mirror = copy_of(stack, tmp_path, source)
    feed = mirror.peers._feed
    told: list[int] = []
    monkeypatch.setattr(feed._link, "mark", told.append)

    def put_all(count: int) -> None:
        source.put(count, term=1)
        source.commit()
        mirror.run_until(lambda: mirror.has_all(source), "all of the log")
        feed.tell_held(source.end.position)

    put_all(100)
    first = source.end.position
    mirror.run_until(lambda: told, "the first mark")
    put_all(100)
    heard = feed._told_at
    mirror.run_until(lambda: feed._told_at > heard + 0.5, "more questions")
    few = list(told)
    put_all(2_000)
    mirror.run_until(lambda: source.end.position in told, "a mark of what is much more")
    much = len(told)
    monkeypatch.setattr(source_feed, "MARK_AGAIN_S", 0.1)
    mirror.run_until(lambda: len(told) > much + 1, "a mark that says nothing new")

    assert few[-1] <= first and 0 not in told
    assert told[much:] == [source.end.position] * (len(told) - much)


def test_what_was_heard_last_outlives_a_start_without_a_source(
    tmp_path: Path, stack: ExitStack
) -> None:
    source = source_of(stack, tmp_path)
    source.put(100, term=1)
    source.commit()
    with ExitStack() as before:
        mirror = copy_of(before, tmp_path, source)
        mirror.run_until(lambda: mirror.has_all(source), "all of the log")
        source.put(50, term=1)
        source.commit()
        mirror.run_until(lambda: mirror.peers._told is not None, "a word of the source")
        mirror.peers._told = {
            **mirror.peers._told, "source_index": 149, "source_position": source.end.position
        }  # fmt: skip
    source.stop()
    note = mirror.paths.own / LAST_WORD
    noted = note.read_bytes()

    again = copy_of(stack, tmp_path, source)
    again.peers._noted_at = -1_000.0
    again.run_until(lambda: again.peers.refusals, "the silence")
    again.peers._report_at = 0.0
    again.turn()
    told = read_mirror_report(again.runtime / "mirror")

    assert told is not None
    assert (told["source_index"], told["silent_s"]) == (149, None)
    assert told["lag_messages"] == 149 - again.core.commit
    assert note.read_bytes() == noted
    assert json.loads(noted)[0]["silent_s"] is not None


def test_the_lag_is_the_age_of_the_latest_word_of_which_all_is_here() -> None:
    lag = MirrorLag()

    lag.heard(Index(10), Position(1_000), 1.0, hears=True)
    behind = lag.look(Index(4), Position(400), 2.0)
    lag.heard(Index(20), Position(2_000), 3.0, hears=True)
    half = lag.look(Index(10), Position(1_000), 4.0)
    lag.heard(Index(20), Position(2_000), 5.0, hears=True)
    whole = lag.look(Index(20), Position(2_000), 6.0)
    silent = lag.look(Index(20), Position(2_000), 66.0)

    assert behind == (6, 600, None, 1.0, 10, 1_000)
    assert half == (10, 1_000, 3.0, 1.0, 20, 2_000)
    assert whole == (0, 0, 1.0, 1.0, 20, 2_000)
    assert silent == (0, 0, 61.0, 61.0, 20, 2_000)


def test_a_member_that_is_behind_another_one_tells_nothing_new() -> None:
    lag = MirrorLag()

    lag.heard(Index(10), Position(1_000), 1.0, hears=True)
    lag.look(Index(10), Position(1_000), 1.0)
    lag.heard(Index(8), Position(800), 9.0, hears=True)

    assert lag.look(Index(10), Position(1_000), 9.0) == (0, 0, 8.0, 0.0, 10, 1_000)


def test_who_hears_no_leader_tells_that_something_is_missing_and_never_that_nothing_is() -> None:
    lag = MirrorLag()

    lag.heard(Index(10), Position(1_000), 1.0, hears=True)
    lag.look(Index(10), Position(1_000), 1.0)
    lag.heard(Index(12), Position(1_200), 5.0, hears=False)
    behind = lag.look(Index(10), Position(1_000), 5.0)
    lag.heard(Index(12), Position(1_200), 9.0, hears=False)

    assert behind == (2, 200, 4.0, 0.0, 12, 1_200)
    assert lag.look(Index(12), Position(1_200), 9.0).seconds == 8.0


def test_many_words_take_no_more_room_and_never_make_the_lag_less() -> None:
    lag = MirrorLag()
    for number in range(5 * WORDS_MAX):
        lag.heard(Index(number), Position(number), float(number), hears=True)
    held = 2 * WORDS_MAX

    found = lag.look(Index(held), Position(held), 5.0 * WORDS_MAX)

    assert found.seconds is not None
    assert found.seconds >= 5 * WORDS_MAX - held
    assert len(lag._words) <= WORDS_MAX
