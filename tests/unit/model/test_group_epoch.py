"""Terms of group epochs: what is promoted is above all that was before it, and told apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.group_epoch import DRAWS, EPOCH_MAX, epoch_of, least_term, promoted_term

_TERMS = st.integers(0, (EPOCH_MAX << 32) - 1)
_DRAWS = st.integers(0, DRAWS - 1)


@given(_TERMS, _DRAWS)
def test_a_promoted_group_is_above_every_term_of_the_old_one(term: int, draw: int) -> None:
    promoted = promoted_term(term, draw)

    assert epoch_of(promoted) == epoch_of(term) + 1
    assert promoted >= least_term(epoch_of(term) + 1) > term
    assert promoted < 2**53


@given(_TERMS, _DRAWS, _DRAWS, st.integers(0, 65_535), st.integers(0, 65_535))
def test_two_that_were_promoted_by_mistake_share_no_term(
    term: int, one: int, other: int, elections: int, others_elections: int
) -> None:
    terms = {promoted_term(term, one) + elections, promoted_term(term, other) + others_elections}

    assert len(terms) == 2 or (one, elections) == (other, others_elections)


def test_a_group_that_was_never_promoted_has_no_epoch() -> None:
    assert epoch_of(0) == epoch_of(2**31) == 0
    assert least_term(0) == 0
