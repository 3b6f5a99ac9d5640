"""Every message of the core survives the wire; what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Term
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import (
    NO_ENTRY,
    Append,
    AppendReply,
    Attest,
    EntryId,
    LogTail,
    PreVote,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    TermRun,
    TimeoutNow,
    Vote,
    VoteRefusal,
    VoteReply,
)

NUMBERS = st.integers(-1, 2**62)
ENTRIES = st.builds(EntryId, NUMBERS, NUMBERS)
RUNS = st.lists(st.builds(TermRun, NUMBERS, st.integers(1, 2**40)), max_size=5).map(tuple)
REASONS = st.none() | st.sampled_from(VoteRefusal)
MESSAGES = st.one_of(
    st.builds(PreVote, NUMBERS, ENTRIES),
    st.builds(Vote, NUMBERS, ENTRIES, st.booleans()),
    st.builds(PreVoteReply, NUMBERS, NUMBERS, REASONS),
    st.builds(VoteReply, NUMBERS, NUMBERS, REASONS),
    st.builds(Append, NUMBERS, ENTRIES, RUNS, NUMBERS, NUMBERS),
    st.builds(
        AppendReply,
        NUMBERS,
        NUMBERS,
        st.booleans(),
        NUMBERS,
        NUMBERS,
        st.none() | st.builds(LogTail, ENTRIES, RUNS),
        st.booleans(),
    ),
    st.builds(TimeoutNow, NUMBERS),
    st.builds(ReadRequest, NUMBERS, NUMBERS),
    st.builds(ReadReply, NUMBERS, NUMBERS, st.none() | NUMBERS),
    st.builds(Attest, NUMBERS, NUMBERS, NUMBERS),
)


@given(MESSAGES)
def test_a_message_comes_out_as_it_went_in(message: object) -> None:
    assert decode_message(memoryview(encode_message(message))) == message


def test_what_a_steady_group_says_has_the_layout_of_earlier_versions() -> None:
    def numbers(*values: int) -> bytes:
        return b"".join(value.to_bytes(8, "little") for value in values)

    previous = EntryId(Term(7), Index(4))
    one_run = Append(Term(7), previous, (TermRun(Term(7), 3),), Index(2), 6)
    heartbeat = Append(Term(7), previous, (), Index(2), 6)
    reply = AppendReply(Term(7), 6, True, Index(4), Index(3), None, True)

    assert encode_message(one_run) == numbers(0x0105, 7, 7, 4, 2, 6, 1, 7, 3, 0)
    assert encode_message(heartbeat) == numbers(0x0105, 7, 7, 4, 2, 6, 0, 0)
    assert encode_message(reply) == numbers(0x0106, 7, 6, 4, 3, 0b011)


@pytest.mark.parametrize("wrong", [(0, 0x0205), (6, 2), (8, 0), (9, 1)])
def test_a_wrong_number_in_an_append_of_one_run_is_refused(wrong: tuple[int, int]) -> None:
    at, value = wrong
    data = bytearray(encode_message(Append(Term(7), NO_ENTRY, (TermRun(Term(7), 3),), Index(2), 6)))
    data[at * 8 : at * 8 + 8] = value.to_bytes(8, "little")

    with pytest.raises(ProtocolError):
        decode_message(data)


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_short_is_refused(message: object, data: st.DataObject) -> None:
    whole = encode_message(message)
    size = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(ProtocolError):
        decode_message(whole[:size])


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_a_message_or_a_protocol_error(noise: bytes) -> None:
    try:
        message = decode_message(noise)
    except ProtocolError:
        return

    assert decode_message(encode_message(message)) == message


def test_another_version_is_named() -> None:
    data = bytearray(encode_message(TimeoutNow(7)))
    data[1] = 9

    with pytest.raises(ProtocolError, match="version") as caught:
        decode_message(bytes(data))
    assert caught.value.details == {"version": 9, "ours": 1}
