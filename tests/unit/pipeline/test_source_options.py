"""Options are taken as they are meant, and a wrong one is named with what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.job_defaults import SPLIT_BYTES
from ledgermq.pipeline.source_options import (
    TopicChoice,
    columns_of,
    parse_options,
)

PATH = {"path": "/store"}


def test_how_large_bodies_may_become_is_bounded() -> None:
    assert parse_options({**PATH, "inflateMax": "1000"}, streaming=False).inflate_max == 1_000
    for value in ("0", "-1", str((64 << 20) + 1)):
        with pytest.raises(ConfigError, match="inflateMax"):
            parse_options({**PATH, "inflateMax": value}, streaming=False)
    assert columns_of({**PATH, "columns": "body,bodyWhy"}) == ("body", "bodyWhy")


def test_what_is_not_said_is_everything_but_the_systems_topics() -> None:
    options = parse_options(PATH, streaming=False)

    assert (options.paths, options.nodes) == ((Path("/store"),), ())
    assert (options.starting, options.ending) == ("earliest", "latest")
    assert (options.split_bytes, options.min_partitions) == (SPLIT_BYTES, 1)
    assert options.fail_on_data_loss and options.inflate and not options.push_filters
    assert options.choice.has(("orders", 0)) and options.choice.has(("%RETRY%group", 0))
    assert not options.choice.has(("SCHEDULE_TOPIC_XXXX", 0))
    assert not options.choice.has(("LEDGERMQ_SYSTEM", 1))
    assert columns_of(PATH) == COLUMNS


def test_a_stream_begins_behind_what_is_there() -> None:
    assert parse_options(PATH, streaming=True).starting == "latest"


def test_names_of_options_may_be_written_in_any_case() -> None:
    options = parse_options({"PATH": "/a", "MINPARTITIONS": "3"}, streaming=False)

    assert options.min_partitions == 3


def test_queues_are_chosen_by_each_of_the_three_ways() -> None:
    assigned = {"assign": '{"a": [0, 2]}', **PATH}
    choices = [
        parse_options({**PATH, **given}, streaming=True).choice
        for given in ({"subscribe": "a, b"}, {"subscribePattern": "a.*"}, assigned)
    ]

    assert [choice.has(("a", 0)) for choice in choices] == [True, True, True]
    assert [choice.has(("a", 1)) for choice in choices] == [True, True, False]
    assert [choice.has(("ab", 0)) for choice in choices] == [False, True, False]


def test_all_groups_are_chosen_by_their_names_and_have_offsets_of_their_own() -> None:
    nodes = {"nodes": "tcp://a:1,tcp://b:1 ; tcp://c:1"}
    starts = {"startingOffsets": '{"orders-a": {"orders": {"0": 5}}}'}
    options = parse_options({**nodes, "brokerGroups": "all", **starts}, streaming=True)
    some = parse_options({**nodes, "brokerGroups": "orders-a, orders-b"}, streaming=True)
    assert options.groups is not None and some.groups is not None
    first, second = (options.of_group(name, "tcp://a:1,tcp://b:1") for name in ("orders-a", "x"))

    assert options.groups.seeds == ("tcp://a:1,tcp://b:1", "tcp://c:1")
    assert options.groups.has("x") and some.groups.has("orders-b") and not some.groups.has("x")
    assert (first.nodes, first.broker_group) == (("tcp://a:1", "tcp://b:1"), "orders-a")
    assert (first.starting, second.starting) == ({("orders", 0): 5}, "earliest")
    assert columns_of({**nodes, "brokerGroups": "all"}) == (*COLUMNS, "brokerGroup")
    second.choice.check_found(set())


def test_what_was_named_must_be_there() -> None:
    found = {("a", 0), ("a", 1)}
    TopicChoice(topics=frozenset({"a"})).check_found(found)

    with pytest.raises(ConfigError, match=r"no such topic .*\['b'\]"):
        TopicChoice(topics=frozenset({"a", "b"})).check_found(found)
    with pytest.raises(ConfigError, match=r"no such queue .*\['a/2'\]"):
        TopicChoice(queues=frozenset({("a", 2)})).check_found(found)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscrib": "x"}, "no such option (option='subscrib'"),
        ({"assign": "plain0"}, "option is not JSON (option='assign'"),
        (
            {"startingOffsets": "first"},
            "option is not JSON, nor earliest or latest (option='startingOffsets', value='first'",
        ),
        ({"assign": '{"a": 1}'}, "another form (option='assign'"),
        (
            {"subscribe": "a", "assign": "{}"},
            "exclude one another (options=['subscribe', 'assign'])",
        ),
        ({"subscribe": " , "}, "names no topic (option='subscribe'"),
        ({"brokerGroups": "all"}, "give addresses of its nodes"),
        ({"failOnDeadGroup": "false"}, "needs='brokerGroups'"),
        ({"subscribePattern": "("}, "no regular expression (option='subscribePattern'"),
        ({"startingOffsets": "latest"}, "option='startingOffsets', value='latest'"),
        ({"endingOffsets": "earliest"}, "option='endingOffsets', value='earliest'"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "queue offset is negative"),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "another form (option='startingOffsets'"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "another form (option='startingOffsets'"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "exclude one another"),
        ({"startingTimestamp": "noon"}, "not a whole number (option='startingTimestamp'"),
        ({"maxOffsetsPerTrigger": "5"}, "for a stream alone (option='maxOffsetsPerTrigger')"),
        ({"nodes": "ipc:///run/ledgermq"}, "give either path"),
        ({"failOnDataLoss": "perhaps"}, "neither true nor false (option='failOnDataLoss'"),
        ({"minPartitions": "0"}, "too small (option='minPartitions', value=0, minimum=1)"),
        ({"splitBytes": "1"}, "too small (option='splitBytes'"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**PATH, **given}, streaming=False)

    assert said in str(caught.value)


def test_options_of_a_batch_are_refused_for_a_stream() -> None:
    with pytest.raises(ConfigError, match=r"for a batch alone .*endingOffsets"):
        parse_options({**PATH, "endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({"columns": "queueId, topic"}, ("queueId", "topic")),
        ({"columns": "body,topic", "includeBody": "false"}, ("topic",)),
    ],
)
def test_columns_are_those_that_were_asked_for(
    given: dict[str, str], columns: tuple[str, ...]
) -> None:
    assert columns_of({**PATH, **given}) == columns


@pytest.mark.parametrize("columns", ["colour", "topic,topic", ""])
def test_columns_that_there_are_not_are_refused(columns: str) -> None:
    with pytest.raises(ConfigError, match="columns"):
        columns_of({"columns": columns})
