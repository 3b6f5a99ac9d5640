"""Examples of the client do what they say, and their index has all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.client_node import start_client_node
from tests.process.conftest import Node
from tests.process.node_start import run_python

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_index_has_every_example() -> None:
    told = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())

    assert sorted(told) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        (
            "filter_orders",
            ["eu || uk", "order 1", "order 3", "order 5", "order 7",
             "TAGS = 'eu' AND price BETWEEN 300 AND 500", "order 3", "order 5"],
        ),
        ("request_reply", ["tea 3", "coffee 4", "gold not sold"]),
        ("compressed_bodies", ["True"]),
        (
            "many_at_once",
            ["parcel 7 is refused", "40 parcels, at most 10 calls at once"],
        ),
        (
            "trace_orders",
            ["send orders: send", "poll orders: receive", "billed: 3 books",
             "process orders: process as part of what sent it", "commit: settle",
             "records: 3 written, 0 dropped"],
        ),
        ("remind_later", ["order 3", "order 1", "all orders"]),
    ],
)  # fmt: skip
def test_an_example_prints_what_it_promises(
    make_node: Callable[[], Node], name: str, printed: list[str]
) -> None:
    node = make_node()
    start_client_node(node)
    done = run_python(EXAMPLES / f"{name}.py", f"ipc://{node.runtime}")

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.strip() for line in done.stdout.splitlines()] == printed
