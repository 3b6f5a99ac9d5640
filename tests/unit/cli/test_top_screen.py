"""What `ledgermq top` draws where there is little room."""

from __future__ import annotations

import io

from rich.console import Console

from ledgermq.cli.top.top_figures import (
    ClusterFigures,
    MirrorFigures,
    NodeFigures,
    OwnMirrorFigures,
)
from ledgermq.cli.top.top_live import MIRRORS_MAX, Choice, screen

REASON = "no node answers: is it running, and may this user connect? " * 3


def drawn(
    nodes: list[NodeFigures], *, width: int, mirrors: list[MirrorFigures] | None = None
) -> list[str]:
    file = io.StringIO()
    found = ClusterFigures(
        at_ms=0, cluster="c", nodes=nodes, groups=[], group_count=0, group_lag=0,
        groups_complete=True, groups_why="", mirrors=mirrors or [],
    )  # fmt: skip
    Console(file=file, width=width).print(screen(found, Choice(), height=None))
    return file.getvalue().splitlines()


def test_a_long_reason_of_a_node_that_is_away_takes_no_room_of_the_others() -> None:
    nodes = [
        NodeFigures("n0", "a0", role="leader", term=3, behind=0),
        NodeFigures("n1", "a1", away=REASON),
    ]
    lines = drawn(nodes, width=80)

    head = next(line for line in lines if line.startswith("NODE"))
    assert " ".join(head.split()) == "NODE ROLE TERM IN/s IN B/s OUT/s OUT B/s BEHIND DISPATCH"
    assert any(line.split() == ["n1", "away"] for line in lines)
    assert any(line.startswith("n1: no node answers") for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_witness_has_its_line_and_nothing_that_it_would_lack() -> None:
    nodes = [
        NodeFigures("n0", "a0", role="leader", term=3, behind=0),
        NodeFigures("n1", "", role="witness", away="tells nothing"),
    ]
    lines = drawn(nodes, width=80)

    assert "1 of 1 nodes" in lines[0]
    assert any(line.split() == ["n1", "witness"] for line in lines)
    assert not any("tells nothing" in line for line in lines)


def test_mirrors_have_a_line_each_and_of_many_it_is_said_how_many_more() -> None:
    nodes = [
        NodeFigures("n0", "a0", role="leader", term=3, behind=0),
        NodeFigures("m0", "a1", role="mirror", mirror=OwnMirrorFigures(1_234, 2_048, 75)),
    ]
    told = [MirrorFigures(f"site-{at}", 9, 4_096, 12.0) for at in range(MIRRORS_MAX + 2)]
    lines = drawn(nodes, width=80, mirrors=told)

    assert "MIRROR m0, read only: lacks 1,234 messages, 2.0K, lags 1 min 15 s" in lines
    assert "MIRROR at site-0: lacks 4.0K, by what it told 12.0 s ago" in lines
    assert sum(line.startswith("MIRROR at ") for line in lines) == MIRRORS_MAX
    assert "and 2 mirrors more" in lines
