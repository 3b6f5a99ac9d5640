"""Every command that names a topic, a group or a subject: one that is not there is refused.

A misspelt name would look as if something was done, or as if there was nothing to do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from ledgermq.cli.main import whole_parser
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made
from tests.process.node_start import run_command

pytestmark = pytest.mark.slow

NAMED = {"topic", "group", "source", "subject", "topics", "owner"}
"""Arguments, by their names in Python, that a command may have for such a name."""

REFUSED = [
    "send nothing x",
    "receive nothing",
    "topic show nothing",
    "topic alter nothing --queues 5",
    "topic delete nothing --yes",
    "group show biling",
    "group members biling",
    "group alter biling --retry-max 3",
    "group delete biling --yes",
    "group lag biling",
    "group lag billing --topic nothing",
    "offset show biling",
    "offset show billing nothing",
    "offset reset biling orders --to first",
    "offset reset biling orders --to first --force",
    "offset reset billing nothing --to first",
    "offset clone biling billing",
    "offset clone billing biling",
    "offset clone billing biling --force",
    "receipt get nothing 0 0",
    "query id 7F000001136900000000000000000000 --topic nothing",
    "query key nothing k",
    "query offset nothing 0",
    "query time nothing 0 1",
    "message show ID1 --topic nothing",
    "message track ID1 --topic nothing",
    "message find nothing --key k",
    "message browse nothing --queue 0",
    "share show biling",
    "share receive sharers nothing",
    "share end biling --yes",
    "dlq list biling",
    "dlq show biling 0",
    "dlq replay biling --queue 0 --all",
    "transaction commit biling ID 1",
    "transaction rollback biling ID",
    "schema show nothing",
    "schema rule nothing NONE",
    "schema delete nothing --yes",
    "quota set topic:nothing --produce-bytes 5",
    "quota remove topic:nothing",
    "bench produce --topic nothing --seconds 1",
    "bench consume --topic nothing --seconds 1",
]
"""As they are typed; there are a topic ``orders`` and a group ``billing`` that has read of it."""

TAKEN = {
    "topic create": "makes it",
    "group create": "makes it",
    "schema register": "makes it",
    "schema check": "asks whether it could be made",
    "acl add": "may name what is made later, with wild cards",
    "acl alter": "may name what is made later, with wild cards",
    "acl check": "asks of rights alone",
    "topic spread": "of a cluster: makes it where it is not",
    "topic release": "of a cluster",
    "cluster invite": "names a group of nodes",
    "cluster remove": "names a group of nodes",
    "cluster move-home": "names a group of nodes",
    "cluster drain": "names a group of nodes",
    "store dump": "of a directory",
    "store query": "of a directory",
    "piece key": "may name what is made later",
    "piece read": "of sealed pieces",
    "piece delete": "of sealed pieces",
    "explain": "of sealed pieces",
    "share settle": "says of each handle that it is none of the group's",
    "store upgrade": "a group of nodes, which is made",
    "backup restore": "a group of nodes, which is made",
    "spark archive": "names are a choice of those that are there",
    "spark replay": "names are a choice of those that are there",
    "spark stats": "names are a choice of those that are there",
}
"""Others, and why."""


def commands(parser: argparse.ArgumentParser, words: str = "") -> Iterator[str]:
    """All that name something."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands(below, f"{words} {name}".strip())
            return
    if NAMED & {action.dest for action in parser._actions}:
        yield words


def test_each_command_that_names_something_is_here() -> None:
    named = set(commands(whole_parser()))

    refused = {one for one in named if any(words.startswith(f"{one} ") for words in REFUSED)}
    assert named - refused == TAKEN.keys()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start_client_node(made, topics={"auto_create_topic_enable": False})
        assert run_command("send", "orders", "x", "--address", made.address).returncode == 0
        read = run_command("receive", "orders", "--group", "billing", "--address", made.address)
        assert read.returncode == 0, read.stderr
        yield made


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_not_there_is_refused_by_its_name(node: Node, words: str) -> None:
    told = run_command(*words.split(" "), "--address", node.address)

    name = next(one for one in ("biling", "nothing") if one in words.replace("billing", ""))
    assert told.returncode == 1 and name in told.stderr, (told.stdout, told.stderr)
    assert "usage:" not in told.stderr, told.stderr
    listed = run_command("group", "list", "--address", node.address).stdout
    listed += run_command("topic", "list", "--address", node.address).stdout
    assert name not in listed
