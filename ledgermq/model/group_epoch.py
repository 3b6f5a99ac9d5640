"""Group epoch: the upper half of a term; a group that was made of a mirror begins the next one.

A term of a greater epoch is greater than all of a lesser one, so whatever goes by terms goes by
epochs: who follows the highest term leaves a group whose mirror was promoted. Layout of a term:

    bits 32 to 62   epoch; 0 in a group that was never promoted
    bits 16 to 31   drawn at the promotion: two mirrors that were promoted have others
    bits 0 to 15    elections of the group since; more of them go on into the bits above
"""

from __future__ import annotations

from ledgermq.model.ids import Term

EPOCH_SHIFT = 32
DRAW_SHIFT = 16
DRAWS = 1 << (EPOCH_SHIFT - DRAW_SHIFT)
"""Number of values of ``draw``, by which promotions of one log are told apart."""

EPOCH_MAX = (1 << 20) - 1
"""Terms stay below 2**53: programs that read JSON have doubles."""


def epoch_of(term: int) -> int:
    """The epoch of a group that is in ``term``."""
    return term >> EPOCH_SHIFT


def least_term(epoch: int) -> Term:
    """No group of ``epoch`` is in a lesser term."""
    return Term(epoch << EPOCH_SHIFT)


def promoted_term(term: int, draw: int) -> Term:
    """What a group begins with that is made of a log in ``term``: its first leader has one more.

    Args:
        draw: a random number, ``0 <= draw < DRAWS``.
    """
    assert 0 <= draw < DRAWS, draw
    return Term(least_term(epoch_of(term) + 1) | draw << DRAW_SHIFT)
