"""A leader whose writer was replaced: what it may propose before that one stamps."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import BusyError
from ledgermq.model.ids import Index
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId
from tests.unit.raft.test_full_disk import TERM, A, B, leader


def test_no_membership_is_proposed_before_a_new_writer_stamps() -> None:
    core = leader(fit=True)
    last = EntryId(TERM, Index(1))
    two = Membership(frozenset({A, B}))
    again = core.log_ready(last)
    with pytest.raises(BusyError) as refused:
        core.propose_membership(two)
    core.writer_granted(TERM, last)
    proposed = core.propose_membership(two)

    assert again.grant == TERM
    assert refused.value.message == "the writer is about to begin anew"
    assert proposed.propose_membership == two
