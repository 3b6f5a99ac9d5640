"""Every message of the core survives the wire; what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import (
    Append,
    AppendReply,
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
)


@given(MESSAGES)
def test_a_message_comes_out_as_it_went_in(message: object) -> None:
    assert decode_message(memoryview(encode_message(message))) == message


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
