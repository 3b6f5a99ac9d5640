"""What keeps a group of a cluster from being drained, as texts."""

from __future__ import annotations

import pytest

from ledgermq.cli.clusters.cluster_verbs import Remains

NOTHING = Remains("b", 0, [], True, 0, 0, 0, 0, {}, {})


def test_a_group_in_which_nothing_is_left_is_drained() -> None:
    assert NOTHING.reasons == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"open": 2}, "2 topics that take messages"),
        ({"timers": 1_000}, "1,000 timers"),
        ({"delayed": 3}, "3 delayed messages"),
        ({"half_messages": 4}, "4 messages of open transactions"),
        ({"packs": 5}, "5 parts of batches of a sink"),
        ({"lags": {"readers": 6}}, "6 messages for readers"),
        ({"dead_letters": {"readers": 7}}, "7 dead letters of readers"),
        ({"is_known": False}, "a writer that does not know its topics yet"),
    ],
)
def test_each_thing_that_is_left_holds_it_up(changed: dict[str, object], reason: str) -> None:
    assert NOTHING._replace(**changed).reasons == [reason]  # type: ignore[arg-type]
