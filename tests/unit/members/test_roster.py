"""Memberships as bytes, and the file that says where in the log they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.members.roster import (
    CUT_MAX,
    Proposal,
    Roster,
    RosterEntry,
    RosterFile,
    ToldGroup,
    decode_group,
    encode_group,
    keep_group,
    read_group,
)
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import NO_ENTRY, TermRun
from ledgermq.store.files.checked_document import checked

N0, N1, N2 = NodeId("n0"), NodeId("n1"), NodeId("n2")
ROSTER = Roster(
    Membership(frozenset({N0, N1}), frozenset({N2}), frozenset({N1})),
    {N0: "10.0.0.1:40911", N1: "[::1]:40911", N2: "node-2.example:40911"},
)


def entry(index: int, term: int) -> RosterEntry:
    return RosterEntry(Index(index), Term(term), ROSTER)


def log(*counts: tuple[int, int]) -> EntryTerms:
    return EntryTerms(NO_ENTRY, [TermRun(Term(term), count) for term, count in counts])


def test_a_roster_comes_back_from_its_bytes() -> None:
    assert Roster.decode(ROSTER.encode()) == ROSTER


def test_members_without_bodies_are_named_only_where_there_are_some() -> None:
    one = frozenset({N2})
    membership = Membership(frozenset({N0, N1, N2}), frozenset(), one, one)
    roster = Roster(membership, dict(ROSTER.addresses))

    assert Roster.decode(roster.encode()) == roster
    assert b'"bodiless": ["n2"]' in roster.encode()
    assert b"bodiless" not in ROSTER.encode()


def test_what_is_told_of_a_group_comes_back_from_its_bytes() -> None:
    group = ToldGroup(4, ROSTER.addresses)

    assert decode_group(encode_group(group)) == group


def test_what_is_told_of_a_group_is_kept_and_a_damaged_file_is_seen(tmp_path: Path) -> None:
    group, path = ToldGroup(4, ROSTER.addresses), tmp_path / "told-group"
    assert read_group(path) is None

    keep_group(path, group)
    assert read_group(path) == group

    for content in (path.read_bytes().replace(b"4", b"5", 1), checked(b'{"level": 4}')):
        path.write_bytes(content)
        with pytest.raises(CorruptLogError):
            read_group(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no object"),
        (b'{"level": 4}', "without members"),
        (b'{"level": 4, "members": {}}', "no members, or too many"),
        (encode_group(ToldGroup(4, {NodeId(f"n{at}"): "a:1" for at in range(65)})), "or too many"),
        (b'{"level": 4, "members": {"n0": "a"}}', "not the address"),
        (b'{"level": 4, "members": {"zero": "a:1"}}', "not the id"),
        (b'{"level": 4, "members": {"n0": 1}}', "not the id"),
        (b'{"members": {"n0": "a:1"}}', "no feature level"),
        (b'{"level": true, "members": {"n0": "a:1"}}', "no feature level"),
        (b'{"level": -1, "members": {"n0": "a:1"}}', "no feature level"),
        (b'{"level": 256, "members": {"n0": "a:1"}}', "no feature level"),
    ],
)
def test_what_says_nothing_of_a_group_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        decode_group(content)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"learners": {}, "witnesses": []}', "without voters"),
        (b'{"voters": {}, "learners": {}, "witnesses": []}', "without a voter that can lead"),
        (b'{"voters": {"n0": "a:1"}, "learners": {}, "witnesses": ["n1"]}', "are no voters"),
        (b'{"voters": {"n0": "a:1"}, "learners": {}, "witnesses": ["n0"]}', "without a voter"),
        (b'{"voters": {"n0": "a:1"}, "learners": {"n0": "a:1"}, "witnesses": []}', "that learns"),
        (
            b'{"voters": {"n0": "a:1", "n1": "b:1"}, "learners": {}, "witnesses": [],'
            b' "bodiless": ["n1"]}',
            "are no witnesses",
        ),
        (b'{"voters": {"zero": "a:1"}, "learners": {}, "witnesses": []}', "not the id"),
        (b'{"voters": {"n0": "a"}, "learners": {}, "witnesses": []}', "not the address"),
        (b'{"voters": {"n0": "a:65536"}, "learners": {}, "witnesses": []}', "not the address"),
    ],
)
def test_what_is_no_roster_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        Roster.decode(content)


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    file = RosterFile(tmp_path / "members")
    file.propose(Proposal(Term(2), Index(8), 300, ROSTER))
    proposed = RosterFile(tmp_path / "members").proposed
    file.put(entry(9, 2))
    file.put(entry(12, 2))
    again = RosterFile(tmp_path / "members")

    assert proposed == Proposal(Term(2), Index(8), 300, ROSTER)
    assert again.entries == (entry(9, 2), entry(12, 2))
    assert again.proposed is None


def test_an_entry_takes_the_place_of_all_behind_it(tmp_path: Path) -> None:
    file = RosterFile(tmp_path / "members")
    for index in (9, 12, 15):
        file.put(entry(index, 2))
    file.put(entry(12, 3))

    assert RosterFile(tmp_path / "members").entries == (entry(9, 2), entry(12, 3))


def test_only_what_the_log_has_is_kept(tmp_path: Path) -> None:
    file = RosterFile(tmp_path / "members")
    for known in (entry(1, 1), entry(3, 1), entry(5, 2), entry(9, 2)):
        file.put(known)
    file.keep_those_of(log((1, 3), (2, 3)), lambda _: True)

    assert RosterFile(tmp_path / "members").entries == (entry(1, 1), entry(5, 2))


def test_what_was_cut_is_known_again_where_the_log_has_it_again(tmp_path: Path) -> None:
    path = tmp_path / "members"
    file = RosterFile(path)
    for known in (entry(1, 1), entry(5, 2)):
        file.put(known)
    file.cut_behind(Index(3))
    without = file.content()
    # The power has failed before the log's own cut was durable, once more or less.
    shorter, longer, other = RosterFile(path), RosterFile(path), RosterFile(path)
    shorter.keep_those_of(log((1, 4)), lambda _: True)
    other.keep_those_of(log((1, 3), (2, 3)), lambda _: False)
    before = [one.entries for one in (file, shorter, other)]
    longer.keep_those_of(log((1, 3), (2, 3)), lambda one: one == entry(5, 2))

    assert before == [(entry(1, 1),)] * 3
    assert longer.entries == RosterFile(path).entries == (entry(1, 1), entry(5, 2))
    assert without != longer.content()
    assert b"cut" not in path.read_bytes()


def test_so_many_that_were_cut_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "members"
    file = RosterFile(path)
    for term in range(1, CUT_MAX + 4):
        file.put(entry(9, term))

    assert RosterFile(path).cut == tuple(entry(9, term) for term in range(3, CUT_MAX + 3))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "members"
    RosterFile(path).put(entry(9, 2))
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)

    with pytest.raises(CorruptLogError, match="list of members is not whole") as raised:
        RosterFile(path)
    assert raised.value.details["file"] == str(path)
