"""Addresses of nodes: two endpoints from one text, and what is none."""

from __future__ import annotations

import pytest

from ledgermq.client.core.address import RESOLVE_S, local_host, parse_address, parse_addresses
from ledgermq.model.errors import ConfigError


def test_a_runtime_directory_has_both_sockets() -> None:
    address = parse_address("ipc:///run/ledgermq/")

    assert address[:2] == ("ipc:///run/ledgermq/consume", "ipc:///run/ledgermq/produce")


@pytest.mark.parametrize(
    ("told", "endpoint"),
    [
        ("tcp://10.0.0.9:7001", "tcp://10.0.0.9:7001"),
        ("tcp://*:7001", "tcp://node.example:7001"),
        ("tcp://0.0.0.0:7001", "tcp://node.example:7001"),
    ],
)
def test_over_tcp_the_broker_tells_where_the_writer_is(told: str, endpoint: str) -> None:
    address = parse_address("tcp://node.example:7002")

    assert address.produce_endpoint(told) == endpoint


def test_a_node_without_a_tcp_endpoint_for_producers_is_told_with_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"listen\.produce"):
        parse_address("tcp://node.example:7002").produce_endpoint("")


@pytest.mark.parametrize(
    "text",
    ["", "/run/ledgermq", "ipc://run/ledgermq", "ipc://", "tcp://host", "tcp://host:0",
     "tcp://host:65536", "http://host:80", "ipc:///" + "x" * 100],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("ipc:///run/ledgermq", "127.0.0.1"),
        ("tcp://127.0.0.1:7002", "127.0.0.1"),
        ("tcp://[::1]:7002", "::1"),
        ("tcp://localhost:7002", "127.0.0.1"),
    ],
)
def test_the_own_address_is_the_one_towards_the_node(text: str, host: str) -> None:
    assert local_host(parse_addresses(text)) == (host, 0)


@pytest.mark.parametrize(
    "given",
    ["tcp://a:1, ipc:///run/b", ["tcp://a:1", "ipc:///run/b"], ("tcp://a:1", "ipc:///run/b")],
)
def test_nodes_stand_in_a_list_or_are_divided_by_commas(given: str | list[str]) -> None:
    places = parse_addresses(given)

    assert places == [parse_address("tcp://a:1"), parse_address("ipc:///run/b")]


@pytest.mark.parametrize("given", ["", [], "tcp://a:1,", "tcp://a:1,tcp://a:1", ["ipc://a"]])
def test_a_list_without_nodes_or_with_one_twice_is_refused(given: str | list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_addresses(given)


def test_the_own_address_is_the_one_towards_a_node_elsewhere() -> None:
    assert local_host(parse_addresses("ipc:///run/b,tcp://[::1]:7002")) == ("::1", 0)


def test_keys_of_a_client_stand_behind_a_tcp_address() -> None:
    address = parse_address("tcp://node:9876?keys=/etc/orders.keys")

    assert address == ("tcp://node:9876", "", "/etc/orders.keys", RESOLVE_S)


@pytest.mark.parametrize(
    ("text", "keys", "resolve_s"),
    [
        ("tcp://node:1?resolve_s=5", "", 5),
        ("tcp://node:1?keys=/a&b&resolve_s=86400", "/a&b", 86_400),
        ("tcp://node:1?keys=/a&resolve_s=5s", "/a&resolve_s=5s", RESOLVE_S),
    ],
)
def test_how_often_a_name_is_asked_for_stands_last(text: str, keys: str, resolve_s: int) -> None:
    assert parse_address(text)[2:] == (keys, resolve_s)


@pytest.mark.parametrize("seconds", [0, 86_401])
def test_names_are_asked_for_at_sensible_times(seconds: int) -> None:
    with pytest.raises(ConfigError, match=r"resolve_s out of range.*86400"):
        parse_address(f"tcp://node:1?resolve_s={seconds}")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("tcp://node:1", "node"),
        ("tcp://10.0.0.1:1", ""),
        ("tcp://[fe80::1%eth0]:1", ""),
        ("ipc:///run/b", ""),
    ],
)
def test_a_host_that_is_no_address_is_a_name(text: str, name: str) -> None:
    assert parse_address(text).name == name


def test_the_writer_is_where_a_names_broker_was_found() -> None:
    place = parse_address("tcp://node.example:7002?keys=/a").at("::1")

    assert place == ("tcp://[::1]:7002", "", "/a", RESOLVE_S)
    assert place.produce_endpoint("tcp://eth0:7001") == "tcp://[::1]:7001"


@pytest.mark.parametrize("text", ["tcp://node:9876?", "tcp://node:9876?keys=", "tcp://n:1?key=a"])
def test_other_words_behind_an_address_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="keys=FILE"):
        parse_address(text)
