from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.store.files.properties_file import (
    CurrentTerm,
    DLedgerCheckpoint,
    decode_current_term,
    decode_dledger_checkpoint,
    encode_current_term,
    encode_dledger_checkpoint,
)


@pytest.mark.parametrize(
    ("data", "current"),
    [
        (b"voteLeader=n1\ncurrTerm=3\n", CurrentTerm(Term(3), NodeId("n1"))),
        (b"voteLeader=\ncurrTerm=3\n", CurrentTerm(Term(3), None)),
    ],
)
def test_term_and_vote_are_written_as_dledger_writes_them(
    data: bytes, current: CurrentTerm
) -> None:
    assert encode_current_term(current) == data
    assert decode_current_term(data) == current


def test_the_checkpoint_is_written_as_dledger_writes_it() -> None:
    data = b"committedIndex=8\nendIndex=9\n"
    checkpoint = DLedgerCheckpoint(end=Index(9), committed=Index(8))

    assert encode_dledger_checkpoint(checkpoint) == data
    assert decode_dledger_checkpoint(data) == checkpoint


def test_files_of_the_real_broker_are_read(golden: Any) -> None:
    folder = golden("gd0") / "dledger-n0"
    current = decode_current_term((folder / "currterm").read_bytes())
    checkpoint = decode_dledger_checkpoint((folder / "checkpoint").read_bytes())

    assert current == CurrentTerm(Term(1), NodeId("n1"))
    assert checkpoint == DLedgerCheckpoint(end=Index(443), committed=Index(443))


@given(st.integers(0, 2**63 - 1), st.none() | st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True))
def test_every_term_is_read_as_it_was_written(term: int, vote: str | None) -> None:
    current = CurrentTerm(Term(term), None if vote is None else NodeId(vote))

    assert decode_current_term(encode_current_term(current)) == current


def test_comments_spaces_and_order_do_not_matter() -> None:
    data = b"#Mon Jan 01\r\n\r\n currTerm = 4 \r\n!x\nvoteLeader=n0"

    assert decode_current_term(data) == CurrentTerm(Term(4), NodeId("n0"))


def test_a_checkpoint_may_say_nothing() -> None:
    nothing = DLedgerCheckpoint(end=NO_INDEX, committed=NO_INDEX)

    assert decode_dledger_checkpoint(b"") == nothing
    assert decode_dledger_checkpoint(b"endIndex=-1\n") == nothing


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"voteLeader=n1\n",
        b"currTerm=\n",
        b"currTerm=-1\n",
        b"currTerm=1_0\n",
        b"currTerm=0x1\n",
        b"currTerm=9223372036854775808\n",
        b"currTerm=" + b"9" * 5_000,
        b"currTerm\n",
        b"currTerm=\xff\n",
        "currTerm=٣\n".encode(),
    ],
)
def test_a_term_that_is_lost_or_damaged_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptLogError) as caught:
        decode_current_term(data, file="currterm")

    assert caught.value.details["file"] == "currterm"
    assert "field" in caught.value.details


@given(st.binary(max_size=60) | st.text("currTem=0123456789-\n").map(str.encode))
def test_any_bytes_are_read_or_corrupt(data: bytes) -> None:
    for prefix in (b"", b"currTerm=1\n", b"endIndex="):
        with suppress(CorruptLogError):
            assert decode_current_term(prefix + data).term >= 0
        with suppress(CorruptLogError):
            assert decode_dledger_checkpoint(prefix + data).end >= NO_INDEX
