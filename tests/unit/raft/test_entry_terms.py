"""The run-length table against a plain list of terms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.ids import NO_INDEX, Index, Term
from ledgermq.raft.entry_terms import TAIL_RUNS_MAX, UNKNOWN_TERM, EntryTerms
from ledgermq.raft.messages import NO_ENTRY, EntryId, TermRun

terms_of_logs = st.lists(st.integers(1, 6), max_size=30).map(sorted)


def table(terms: list[int], before: EntryId = NO_ENTRY) -> EntryTerms:
    return EntryTerms(before, (TermRun(Term(term), 1) for term in terms))


def listed(log: EntryTerms) -> list[int]:
    runs = log.runs(log.first, log.last.index)
    return [run.term for run in runs for _ in range(run.count)]


@given(terms_of_logs)
def test_a_table_says_what_the_list_says(terms: list[int]) -> None:
    log = table(terms)

    assert listed(log) == terms
    assert [log.term_of(Index(at)) for at in range(len(terms))] == terms
    assert log.last == (EntryId(Term(terms[-1]), Index(len(terms) - 1)) if terms else NO_ENTRY)
    assert log.term_of(Index(len(terms))) is None
    for term in range(1, 7):
        last = max((at for at, of in enumerate(terms) if of == term), default=None)
        assert log.last_index_of(Term(term)) == last


@given(terms_of_logs, st.data())
def test_truncating_keeps_the_beginning_and_compacting_the_end(
    terms: list[int], data: st.DataObject
) -> None:
    after = data.draw(st.integers(-1, len(terms) - 1))
    cut = table(terms)
    cut.truncate(Index(after))

    assert listed(cut) == terms[: after + 1]

    first = data.draw(st.integers(0, len(terms)))
    short = table(terms)
    short.compact(Index(first))

    assert short.first == first
    assert listed(short) == terms[first:]
    assert short.last == table(terms).last
    assert short.before.term == (terms[first - 1] if first else 0)


@given(terms_of_logs, terms_of_logs, st.data())
def test_two_logs_agree_up_to_the_last_common_entry(
    leader: list[int], follower: list[int], data: st.DataObject
) -> None:
    common = data.draw(st.integers(0, min(len(leader), len(follower))))
    # Logs of one group: what matches anywhere matches before it too.
    follower = leader[:common] + [term + 10 for term in follower[common:]]
    above = data.draw(st.integers(-1, common - 1))
    tail = table(follower).tail(Index(above))

    assert table(leader).agreement(tail) == common - 1


def test_a_long_tail_is_bounded_and_still_tells_where_it_begins() -> None:
    log = table(list(range(1, 200)))

    tail = log.tail(NO_INDEX)

    assert len(tail.runs) == TAIL_RUNS_MAX
    assert log.agreement(tail) == log.last.index
    assert table([*range(1, 100)]).agreement(tail) is None


@given(terms_of_logs, terms_of_logs, st.data())
def test_the_first_difference_is_the_first_entry_that_is_missing_or_another(
    ours: list[int], theirs: list[int], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(ours)))
    runs = [TermRun(Term(term), 1) for term in theirs]
    expected = next(
        (
            start + at
            for at, term in enumerate(theirs)
            if start + at >= len(ours) or ours[start + at] != term
        ),
        None,
    )

    assert table(ours).first_difference(Index(start - 1), runs) == expected


def test_the_term_before_a_log_without_a_head_is_not_known() -> None:
    log = table([4, 4, 5], EntryId(UNKNOWN_TERM, Index(99)))

    assert log.first == 100
    assert log.term_of(Index(99)) is None
    assert log.entry(Index(99)) == EntryId(UNKNOWN_TERM, Index(99))
    assert log.last == EntryId(Term(5), Index(102))
