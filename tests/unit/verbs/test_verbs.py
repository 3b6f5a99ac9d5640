"""The table of verbs: what a struct says is what a broker checks, and what all fronts tell."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

import ledgermq.verbs
from ledgermq.broker.verb_arguments import read_arguments
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.observer.api.call_rows import CALLS
from ledgermq.verbs.access import RemoveUser, SetQuota
from ledgermq.verbs.clusters import (
    LeaveCluster,
    RemoveClusterGroup,
    ShowCluster,
    ShowTopicGroups,
    TopicOverGroups,
    TopicShareView,
)
from ledgermq.verbs.dead_letters import DeadLetterQueue, ShowDeadLetters
from ledgermq.verbs.offsets import CloneOffsets, ResetOffsets
from ledgermq.verbs.told_rows import read_row
from ledgermq.verbs.topics import AlterTopic, CreateTopic, QueueState, ShowTopic, TopicFields
from ledgermq.verbs.verb import Argument, Verb, arguments_of
from ledgermq.verbs.waiting import CancelTimer, ListTimers
from tests.whole_broker import verbs

INSIDE = {"limit", "after", "count", "cluster", "offset", "mode"}
"""Arguments that no front tells under their own name."""


def table() -> list[type[Verb[Any]]]:
    for module in pkgutil.iter_modules(ledgermq.verbs.__path__):
        importlib.import_module(f"ledgermq.verbs.{module.name}")
    found, left = [], [Verb]
    while left:
        kinds = left.pop().__subclasses__()
        left += kinds
        found += [verb for verb in kinds if hasattr(verb, "NAME")]
    return sorted(set(found), key=lambda verb: verb.NAME)


def test_what_verbs_have_in_common_is_said_by_name() -> None:
    # A field of a base stands before those of its verbs, in the place of the first that is given.
    bases, left = [], [Verb]
    while left:
        kinds = left.pop().__subclasses__()
        left += kinds
        bases += [kind for kind in kinds if not hasattr(kind, "NAME")]
    placed = [
        f"{base.__name__}.{one.name}" for base in bases for one in fields(base) if not one.kw_only
    ]

    assert placed == []
    assert CloneOffsets("other", "own").arguments()["source"] == "other"


def value_of(argument: Argument) -> object:
    if argument.among:
        return argument.among[-1]
    if argument.kind is int:
        return argument.bounds.most if argument.bounds else 7
    if argument.texts:
        return ["some", "others"]
    return {str: "some", bool: True, dict: {"a": 1}, list: [3, 1]}[argument.kind]


def filled(verb: type[Verb[Any]], named: str = "") -> Verb[Any]:
    """The verb with all arguments that go together, and with ``named`` in any case."""
    left_out: set[str] = set()
    if issubclass(verb, TopicFields):
        left_out = {"read_queues", "write_queues"} if named == "queues" else {"queues"}
    named_all = [one for one in arguments_of(verb) if one.name not in left_out]
    return verb(**{one.name: value_of(one) for one in named_all})


def wrong_values(argument: Argument) -> Iterator[object]:
    least, most = argument.length or (1, 255)
    yield from {
        str: (*[""][:least], "x" * (most + 1), 7),
        int: ("7", True, 1.5),
        bool: (1, "true"),
        dict: ([], "{}"),
        list: ({}, "1", [-1], [""] if argument.texts else ["1"]),
    }[argument.kind]  # fmt: skip
    if argument.texts:
        yield from (["x"] * (argument.texts.count_max + 1), ["x" * (argument.texts.size_max + 1)])
    if argument.bounds:
        numbers = argument.bounds.least - 1, argument.bounds.most + 1
        yield from ([one] if argument.kind is list else one for one in numbers)
    if argument.among:
        yield "none of them"


@pytest.mark.parametrize("verb", table(), ids=lambda verb: verb.NAME)
def test_a_broker_answers_each_verb_and_asks_for_the_right_that_its_struct_names(
    verb: type[Verb[Any]],
) -> None:
    assert verbs()[verb.NAME].needs == verb.NEEDS


@pytest.mark.parametrize("verb", table(), ids=lambda verb: verb.NAME)
def test_a_broker_reads_what_a_client_writes(verb: type[Verb[Any]]) -> None:
    written = filled(verb)
    if verb is SetQuota:
        # Its numbers go as an object, which ``Quota`` reads.
        assert written.arguments()["fields"] == {
            "produceBytes": 7, "produceMessages": 7, "consumeBytes": 7, "consumeMessages": 7
        }  # fmt: skip
        return
    read = read_arguments(verb, written.arguments())

    for argument in arguments_of(verb):
        assert getattr(read, argument.name) == getattr(written, argument.name)


@pytest.mark.parametrize(
    ("verb", "argument"),
    [(verb, one) for verb in table() for one in arguments_of(verb) if verb is not SetQuota],
    ids=lambda one: one.name if isinstance(one, Argument) else one.NAME,
)
def test_a_value_that_is_none_is_refused_by_the_name_of_its_argument(
    verb: type[Verb[Any]], argument: Argument
) -> None:
    for wrong in wrong_values(argument):
        asked = {**filled(verb, argument.name).arguments(), argument.wire_name: wrong}
        with pytest.raises(ProtocolError) as refused:
            read_arguments(verb, asked)
        details = refused.value.details
        assert details["key" if argument.texts else "argument"] == argument.wire_name

    left_out = filled(verb, argument.name).arguments()
    del left_out[argument.wire_name]
    if argument.is_needed and argument.kind is not dict:
        with pytest.raises(
            ProtocolError, match=argument.texts.what if argument.texts else "missing"
        ):
            read_arguments(verb, left_out)


@pytest.mark.parametrize("verb", table(), ids=lambda verb: verb.NAME)
def test_each_argument_that_somebody_may_say_has_its_sentence(verb: type[Verb[Any]]) -> None:
    mute = [
        one.name
        for one in arguments_of(verb)
        if not (one.about or one.keys or one.name in INSIDE)
        or not all(key.about for key in one.keys)
    ]

    assert mute == []
    assert verb.__doc__


def test_the_api_has_each_field_of_a_verb_once_and_from_the_table() -> None:
    (alter,) = (call for call in CALLS if call.name == "alterTopic")

    told = {field.name: field.about for field in (*alter.path_fields, *alter.body)}
    assert told == {one.name: one.about for one in arguments_of(AlterTopic)}
    assert alter.shape == AlterTopic.shape() == CreateTopic.shape()


def test_a_place_without_its_value_is_refused_before_anybody_is_asked() -> None:
    for wrong in (
        lambda: ResetOffsets("g", "t", "time"),
        lambda: ResetOffsets("g", "t", "first", 7),
    ):  # type: Callable[[], object]
        with pytest.raises(ConfigError, match="a value belongs to"):
            wrong()


def test_what_was_left_out_does_not_go_over_the_wire() -> None:
    assert CreateTopic("t", queues=3).arguments() == {"topic": "t", "queues": 3}
    assert CancelTimer("u").arguments() == {"id": "u"}
    assert RemoveUser("u").arguments() == {"user": "u"}
    assert RemoveUser("u", cluster=True).arguments() == {"user": "u", "cluster": True}
    assert ListTimers().arguments() == {"count": 100}


def test_a_row_is_read_by_its_types_and_what_an_older_broker_does_not_tell_is_a_default() -> None:
    told = {"queue": 3, "min": 1, "max": 7, "last_stored": -1}
    settings = {
        "topic": "t", "read_queues": 8, "write_queues": 8, "perm": 6, "order": False,
        "filter_type": "SINGLE_TAG", "sys_flag": 0, "order_config": "", "warnings": [],
    }  # fmt: skip

    assert read_row(QueueState, told) == QueueState(3, 1, 7, None)
    state = ShowTopic("t").told({**settings, "system": False, "queues": [told], "groups": ["g"]})
    assert state.settings.deduplication_window_ms == 0 and state.messages == 6
    assert ShowTopic("t").document(state)["queues"] == [
        {"queue": 3, "begin": 1, "end": 7, "last_stored": None}
    ]
    for wrong in ({**told, "max": "7"}, {"queue": 3}):
        with pytest.raises(ProtocolError, match="field missing or not an integer"):
            read_row(QueueState, wrong)


def test_rows_within_an_answer_are_read_by_their_types() -> None:
    share = {"group": "a", "queues": 4, "phase": "open"}
    topic = {"topic": "t", "groups": [share], "group": "a", "follows": True, "refused": ""}
    letters = {"queues": [{"queue": 0, "min": 1, "max": 9, "replayed": [[1, 3], [5, 6]]}]}

    over = ShowTopicGroups("t").told(topic)
    (queue,) = ShowDeadLetters("g").told(letters)

    assert over == TopicOverGroups(
        "t", [TopicShareView("a", 4, "open")], *(False,) * 3, "a", True, ""
    )
    assert queue == DeadLetterQueue(0, 1, 9, ((1, 3), (5, 6)))
    assert (queue.replayed_count, queue.was_replayed(3), queue.was_replayed(5)) == (3, False, True)
    for wrong in ([share, 7], [{**share, "queues": "4"}], None):
        with pytest.raises(ProtocolError, match="field missing or not"):
            ShowTopicGroups("t").told({**topic, "groups": wrong})
    for pairs in ([[1, 3], [5]], [[1, "3"]], [7]):
        with pytest.raises(ProtocolError, match="pairs of integers"):
            ShowDeadLetters("g").told({"queues": [{**letters["queues"][0], "replayed": pairs}]})


def test_a_node_without_a_cluster_tells_of_none_and_a_change_of_one_has_to_tell() -> None:
    none = {"node": "n0", "group": "a", "cluster": ""}

    assert ShowCluster().told(none) is None
    assert LeaveCluster().told(none) is None
    with pytest.raises(ProtocolError, match="tells of no cluster"):
        RemoveClusterGroup("b").told(none)


def test_a_quota_has_its_numbers_under_the_names_of_its_row() -> None:
    asked = SetQuota("topic:t", produce_bytes=0, consume_messages=7)

    assert asked.arguments() == {
        "owner": "topic:t",
        "ahead": False,
        "fields": {"produceBytes": 0, "consumeMessages": 7},
    }
