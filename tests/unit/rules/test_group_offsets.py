"""Group offsets: RocketMQ's file, and commits that are whole and never go back by accident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.config_json import decode_document, encode_document
from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.rules.tables.group_offsets import GroupOffsets, GroupTopic

Golden = Callable[[str], Path]
ENDS = {0: 100, 1: 100, 7: 100}

Step = tuple[str, str, dict[int, int] | None]


def test_a_golden_table_is_written_as_it_was_read(golden: Golden) -> None:
    path = golden("gd0") / "config" / "consumerOffset.json"
    document = decode_document(path.read_bytes())

    offsets = GroupOffsets.read(document)

    assert decode_document(encode_document(offsets.to_document())) == document
    assert offsets.offsets("golden-group", "plain0") == {0: 25, 1: 25, 2: 25, 3: 25}
    assert offsets.offsets("golden-group", "plain1") == {}


def commit(
    offsets: GroupOffsets, wanted: dict[int, int], ends: dict[int, int], **how: bool
) -> bool:
    """As the broker does: checked when it is asked for, set when the log has it."""
    changes = offsets.check("g", "t", wanted, ends=ends, **how)
    assert offsets.set("g", "t", wanted) == changes
    return changes


def test_a_commit_is_seen_and_counted_once() -> None:
    offsets = GroupOffsets()

    assert commit(offsets, {0: 5, 1: 0}, ENDS)
    assert not commit(offsets, {0: 5}, ENDS)
    assert offsets.offsets("g", "t") == {0: 5, 1: 0}
    assert list(offsets) == [(GroupTopic("g", "t"), {0: 5, 1: 0})]
    assert offsets.revision == 1


def test_a_commit_leaves_the_queues_that_it_does_not_name() -> None:
    offsets = GroupOffsets()
    commit(offsets, {0: 5, 7: 1}, ENDS)

    commit(offsets, {1: 9}, ENDS)

    assert offsets.offsets("g", "t") == {0: 5, 1: 9, 7: 1}


def test_going_back_is_refused_unless_asked_for() -> None:
    offsets = GroupOffsets()
    commit(offsets, {0: 50}, ENDS)

    with pytest.raises(MessageIllegalError, match="committed=50"):
        commit(offsets, {1: 10, 0: 49}, ENDS)
    assert offsets.offsets("g", "t") == {0: 50}
    assert commit(offsets, {0: 49}, ENDS, may_go_back=True)
    assert offsets.offsets("g", "t") == {0: 49}


@pytest.mark.parametrize("offset", [-1, 101])
def test_an_offset_outside_of_its_queue_is_refused_and_nothing_is_stored(offset: int) -> None:
    offsets = GroupOffsets()

    with pytest.raises(MessageIllegalError, match="end=100"):
        commit(offsets, {0: 1, 1: offset}, ENDS, may_go_back=True)
    assert offsets.offsets("g", "t") == {}
    assert offsets.revision == 0


def test_what_was_committed_stays_valid_while_the_end_of_the_queue_is_behind_it() -> None:
    offsets = GroupOffsets()
    commit(offsets, {0: 50}, ENDS)

    assert not commit(offsets, {0: 50}, {0: 40})
    with pytest.raises(MessageIllegalError):
        commit(offsets, {0: 51}, {0: 40})


def test_keys_that_are_not_understood_are_kept() -> None:
    document = {
        "offsetTable": {"a@b@c": {"0": 1}, "plain": {"0": 2}, "t@g": {"3": 4}},
        "resetOffsetTable": {"x": {}},
    }

    offsets = GroupOffsets.read(document)
    commit(offsets, {0: 1}, ENDS)

    written = decode_document(encode_document(offsets.to_document()))
    assert written == {
        "offsetTable": {"t@g": {"0": 1, "3": 4}, "a@b@c": {"0": 1}, "plain": {"0": 2}},
        "resetOffsetTable": {"x": {}},
    }


@pytest.mark.parametrize("value", [[], {"x": 1}, {"0": "x"}, {"0": None}, {"0": [1]}])
def test_offsets_that_are_no_numbers_are_an_error_that_names_the_key(value: object) -> None:
    with pytest.raises(ConfigError, match="t@g"):
        GroupOffsets.read({"offsetTable": {"t@g": value}})


def test_what_is_forgotten_leaves_nothing_in_the_file() -> None:
    offsets = GroupOffsets()
    offsets.set("g", "t", {0: 5})
    offsets.set("other", "t", {0: 1})

    assert offsets.set("g", "t", None)
    assert not offsets.set("g", "t", None)
    assert offsets.to_document() == {"offsetTable": {"t@other": {0: 1}}}


class Counted(str):
    """A name that counts how often it is compared with another one."""

    __slots__ = ("compared",)
    compared: int

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.compared += 1
        return str.__eq__(self, other)


def counted(name: str) -> Counted:
    found = Counted(name)
    found.compared = 0
    return found


@pytest.mark.parametrize("others", [10, 5_000])
def test_a_look_at_one_group_or_topic_does_not_look_at_the_others(others: int) -> None:
    offsets = GroupOffsets()
    for number in range(others):
        offsets.set(f"group-{number}", "t", {0: 1})
        offsets.set("g", f"topic-{number}", {0: 1})
    offsets.set("some", "rare", {0: 1})
    group, topic = counted("some"), counted("rare")

    assert offsets.of_group(group) == [(GroupTopic("some", "rare"), {0: 1})]
    assert offsets.of_topic(topic) == [(GroupTopic("some", "rare"), {0: 1})]
    assert max(group.compared, topic.compared) < 8


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(NAMES, NAMES, st.sampled_from([None, {}, {0: 0}, {0: 1}, {1: 2}])), max_size=30
)


@given(first=STEPS, snapshot=STEPS, then=STEPS)
def test_looks_by_group_and_by_topic_find_what_a_walk_of_all_finds(
    first: list[Step], snapshot: list[Step], then: list[Step]
) -> None:
    offsets, other = GroupOffsets(), GroupOffsets()

    def check() -> None:
        walked = list(offsets)
        for name in "abc":
            assert offsets.of_group(name) == sorted(one for one in walked if one[0].group == name)
            assert offsets.of_topic(name) == sorted(one for one in walked if one[0].topic == name)
        assert set(offsets.groups()) == {owner.group for owner, _ in walked}

    for step in first:
        offsets.set(*step)
        check()
    for step in snapshot:
        other.set(*step)
    # As a snapshot comes: through a document.
    offsets.replace_with(GroupOffsets.read(other.to_document()))
    assert offsets.to_document() == other.to_document()
    check()
    for step in then:
        offsets.set(*step)
        check()
