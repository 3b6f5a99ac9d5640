"""Message codec: one part a message; an append's entries are the next part.

Layout, little-endian: kind u8, version u8, 6 bytes reserved, term i64, then by kind:

    PRE_VOTE        last term i64, last index i64
    VOTE            last term i64, last index i64, transfer u8
    PRE_VOTE_REPLY  asked i64, reason u8 (0: granted)
    VOTE_REPLY      asked i64, reason u8
    APPEND          previous term i64, previous index i64, commit i64, round i64, runs, indices of
                    membership entries
    APPEND_REPLY    round i64, verified i64, held i64, flags u8 (1 accepted, 2 fit, 4 with a tail),
                    7 bytes reserved; with a tail: term i64, index i64, runs
    TIMEOUT_NOW     –
    READ_REQUEST    read i64
    READ_REPLY      read i64, index i64 (-2: nobody knows)
    ATTEST          last index i64 (-1: none), round i64

    runs            count u32, 4 bytes reserved, then term i64 and entries i64 each
    indices         count u32, 4 bytes reserved, then i64 each
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error

from ledgermq.formats.steady_heads import HEARTBEAT, ONE_RUN, REPLY
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Term
from ledgermq.raft.messages import (
    Append,
    AppendReply,
    Attest,
    EntryId,
    LogTail,
    Message,
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

VERSION = 1
RUNS_MAX = 4_096
"""Runs of one message: a frame of entries has as many only if each is of another term."""


MEMBERSHIPS_MAX = 4_096
"""Membership entries in one message; there is one for each change that an operator made."""


class _Kind(IntEnum):
    PRE_VOTE = 1
    VOTE = 2
    PRE_VOTE_REPLY = 3
    VOTE_REPLY = 4
    APPEND = 5
    APPEND_REPLY = 6
    TIMEOUT_NOW = 7
    READ_REQUEST = 8
    READ_REPLY = 9
    ATTEST = 10


_APPEND_KIND, _REPLY_KIND = int(_Kind.APPEND), int(_Kind.APPEND_REPLY)

_HEAD = Struct("<BB6xq")
_PRE_VOTE = Struct("<qq")
_VOTE = Struct("<qqB")
_VOTE_REPLY = Struct("<qB")
_APPEND = Struct("<qqqq")
_APPEND_REPLY = Struct("<qqqB7x")
_ENTRY = Struct("<qq")
_COUNT = Struct("<I4x")
_INDEX = Struct("<q")
_READ_REQUEST = Struct("<q")
_READ_REPLY = Struct("<qq")
_ATTEST = Struct("<qq")
_ACCEPTED, _FIT, _TAIL = 1, 2, 4

_NOBODY_KNOWS = -2
_REASONS: tuple[VoteRefusal | None, ...] = (None, *VoteRefusal)


def encode_message(message: Message) -> bytes:  # noqa: PLR0911 - one for each kind
    """The bytes of ``message``."""
    match message:
        case Append():
            previous = message.previous
            if len(message.runs) <= 1 and not message.memberships:
                return _steady_append(message)
            body = _APPEND.pack(previous.term, previous.index, message.commit, message.round)
            indices = _indices(message.memberships)
            return _head(_Kind.APPEND, message) + body + _runs(message.runs) + indices
        case AppendReply():
            return _append_reply(message)
        case PreVote():
            last = message.last
            return _head(_Kind.PRE_VOTE, message) + _PRE_VOTE.pack(last.term, last.index)
        case Vote():
            last = message.last
            body = _VOTE.pack(last.term, last.index, message.transfer)
            return _head(_Kind.VOTE, message) + body
        case PreVoteReply() | VoteReply():
            pre = isinstance(message, PreVoteReply)
            body = _VOTE_REPLY.pack(message.asked, _REASONS.index(message.reason))
            return _head(_Kind.PRE_VOTE_REPLY if pre else _Kind.VOTE_REPLY, message) + body
        case TimeoutNow():
            return _head(_Kind.TIMEOUT_NOW, message)
        case ReadRequest():
            return _head(_Kind.READ_REQUEST, message) + _READ_REQUEST.pack(message.read)
        case ReadReply():
            index = _NOBODY_KNOWS if message.index is None else message.index
            return _head(_Kind.READ_REPLY, message) + _READ_REPLY.pack(message.read, index)
        case Attest():
            return _head(_Kind.ATTEST, message) + _ATTEST.pack(message.last, message.round)


def is_accepted(data: memoryview | bytes, term: Term) -> bool:
    """Whether this is a reply of ``term`` that takes what was sent, and says nothing else."""
    if len(data) != REPLY.size:
        return False
    kind, version, of_term, *_, flags = REPLY.unpack_from(data)
    return (kind, version, of_term) == (_REPLY_KIND, VERSION, term) and flags & ~_FIT == _ACCEPTED


def decode_message(data: bytes | memoryview) -> Message:
    """The message in ``data``.

    Raises:
        ProtocolError: it is none of this version.
    """
    size = len(data)
    if size == ONE_RUN.size or size == REPLY.size:  # noqa: PLR1714 - with each message
        known = _decode_one_run(data) if size == ONE_RUN.size else _decode_reply(data)
        if known is not None:
            return known
    try:
        kind, version, term = _HEAD.unpack_from(data)
        if version != VERSION:
            raise ProtocolError("peer message of another version", version=version, ours=VERSION)
        return _decode(kind, Term(term), data)
    except (error, IndexError) as problem:
        raise ProtocolError("peer message cut short", size=len(data)) from problem


def _decode(  # noqa: PLR0911 - one for each kind
    kind: int, term: Term, data: bytes | memoryview
) -> Message:
    at = _HEAD.size
    match kind:
        case _Kind.APPEND:
            previous_term, previous, commit, round_ = _APPEND.unpack_from(data, at)
            at += _APPEND.size
            runs = _decode_runs(data, at)
            return Append(
                term,
                EntryId(Term(previous_term), Index(previous)),
                runs,
                Index(commit),
                round_,
                _decode_indices(data, at + _COUNT.size + _ENTRY.size * len(runs)),
            )
        case _Kind.APPEND_REPLY:
            return _decode_append_reply(term, data)
        case _Kind.PRE_VOTE:
            last_term, last = _PRE_VOTE.unpack_from(data, at)
            return PreVote(term, EntryId(Term(last_term), Index(last)))
        case _Kind.VOTE:
            last_term, last, transfer = _VOTE.unpack_from(data, at)
            return Vote(term, EntryId(Term(last_term), Index(last)), bool(transfer))
        case _Kind.PRE_VOTE_REPLY | _Kind.VOTE_REPLY:
            asked, reason = _VOTE_REPLY.unpack_from(data, at)
            make = PreVoteReply if kind == _Kind.PRE_VOTE_REPLY else VoteReply
            return make(term, Term(asked), _REASONS[reason])
        case _Kind.TIMEOUT_NOW:
            return TimeoutNow(term)
        case _Kind.READ_REQUEST:
            return ReadRequest(term, _READ_REQUEST.unpack_from(data, at)[0])
        case _Kind.READ_REPLY:
            read, index = _READ_REPLY.unpack_from(data, at)
            return ReadReply(term, read, None if index == _NOBODY_KNOWS else Index(index))
        case _Kind.ATTEST:
            last, round_ = _ATTEST.unpack_from(data, at)
            return Attest(term, Index(last), round_)
    raise ProtocolError("unknown peer message", kind=kind)


def _steady_append(message: Append) -> bytes:
    previous = message.previous
    numbers = (
        message.term,
        previous.term,
        previous.index,
        message.commit,
        message.round,
    )
    if not message.runs:
        return HEARTBEAT.pack(_APPEND_KIND, VERSION, *numbers, 0, 0)
    (run,) = message.runs
    return ONE_RUN.pack(_APPEND_KIND, VERSION, *numbers, 1, run.term, run.count, 0)


def _decode_one_run(data: bytes | memoryview) -> Append | None:
    """An append of one run; None when it is another one, or wrong, and has to be looked at."""
    kind, version, term, previous_term, previous, commit, round_, *run, indices = (
        ONE_RUN.unpack_from(data)
    )
    runs, run_term, entries = run
    if (kind, version, runs, indices) != (_APPEND_KIND, VERSION, 1, 0) or entries <= 0:
        return None
    return Append(
        Term(term),
        EntryId(Term(previous_term), Index(previous)),
        (TermRun(Term(run_term), entries),),
        Index(commit),
        round_,
    )


def _decode_reply(data: bytes | memoryview) -> AppendReply | None:
    """A reply without a tail; None when it is another message."""
    kind, version, term, round_, verified, held, flags = REPLY.unpack_from(data)
    if (kind, version) != (_REPLY_KIND, VERSION) or flags & _TAIL:
        return None
    accepted, fit = flags & _ACCEPTED != 0, flags & _FIT != 0
    return AppendReply(Term(term), round_, accepted, Index(verified), Index(held), None, fit)


def _head(kind: _Kind, message: Message) -> bytes:
    return _HEAD.pack(kind, VERSION, message.term)


def _append_reply(message: AppendReply) -> bytes:
    tail = message.tail
    flags = _ACCEPTED * message.accepted | _FIT * message.fit | _TAIL * (tail is not None)
    if tail is None:
        return REPLY.pack(
            _REPLY_KIND, VERSION, message.term, message.round, message.verified, message.held, flags
        )
    body = _APPEND_REPLY.pack(message.round, message.verified, message.held, flags)
    before = _ENTRY.pack(tail.before.term, tail.before.index)
    return _head(_Kind.APPEND_REPLY, message) + body + before + _runs(tail.runs)


def _decode_append_reply(term: Term, data: bytes | memoryview) -> AppendReply:
    at = _HEAD.size
    round_, verified, held, flags = _APPEND_REPLY.unpack_from(data, at)
    at += _APPEND_REPLY.size
    tail = None
    if flags & _TAIL:
        before_term, before = _ENTRY.unpack_from(data, at)
        runs = _decode_runs(data, at + _ENTRY.size)
        tail = LogTail(EntryId(Term(before_term), Index(before)), runs)
    return AppendReply(
        term,
        round_,
        bool(flags & _ACCEPTED),
        Index(verified),
        Index(held),
        tail,
        bool(flags & _FIT),
    )


def _runs(runs: tuple[TermRun, ...]) -> bytes:
    assert len(runs) <= RUNS_MAX, len(runs)
    return _COUNT.pack(len(runs)) + b"".join(_ENTRY.pack(run.term, run.count) for run in runs)


def _decode_runs(data: bytes | memoryview, at: int) -> tuple[TermRun, ...]:
    (count,) = _COUNT.unpack_from(data, at)
    if count > RUNS_MAX:
        raise ProtocolError("too many runs in a peer message", runs=count, limit=RUNS_MAX)
    at += _COUNT.size
    runs = []
    for _ in range(count):
        term, entries = _ENTRY.unpack_from(data, at)
        if entries <= 0:
            raise ProtocolError("empty run in a peer message", entries=entries)
        runs.append(TermRun(Term(term), entries))
        at += _ENTRY.size
    return tuple(runs)


def _indices(indices: tuple[Index, ...]) -> bytes:
    assert len(indices) <= MEMBERSHIPS_MAX, len(indices)
    return _COUNT.pack(len(indices)) + b"".join(_INDEX.pack(index) for index in indices)


def _decode_indices(data: bytes | memoryview, at: int) -> tuple[Index, ...]:
    (count,) = _COUNT.unpack_from(data, at)
    if count > MEMBERSHIPS_MAX:
        raise ProtocolError(
            "too many membership entries in a peer message", entries=count, limit=MEMBERSHIPS_MAX
        )
    at += _COUNT.size
    return tuple(
        Index(_INDEX.unpack_from(data, at + _INDEX.size * number)[0]) for number in range(count)
    )
