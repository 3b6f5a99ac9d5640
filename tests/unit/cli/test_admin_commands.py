"""What ``topic``, ``group`` and ``offset`` make of their words, without a node."""

from __future__ import annotations

import pytest

from ledgermq.cli.admin.offset_command import parse_target
from ledgermq.cli.admin.topic_command import parse_permission, permission_text, queues_text
from ledgermq.cli.main import main
from ledgermq.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "bits"), [("rw", 6), ("wr", 6), ("r", 4), ("w", 2), ("rwi", 7), ("none", 0), ("6", 6)]
)
def test_permissions_are_letters_or_rocketmqs_number(text: str, bits: int) -> None:
    assert parse_permission(text) == bits


@pytest.mark.parametrize("text", ["", "x", "rr", "read"])
def test_other_permissions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_permission(text)


def test_permissions_are_told_in_the_same_letters() -> None:
    assert [permission_text(bits) for bits in (0, 2, 4, 6, 7)] == ["none", "w", "r", "rw", "rwi"]
    assert (queues_text(4, 4), queues_text(8, 4)) == ("4", "8r/4w")


def test_targets_of_a_reset() -> None:
    assert parse_target("first") == ("first", None)
    assert parse_target("last") == ("last", None)
    assert parse_target("17") == ("number", 17)
    assert parse_target("time=1700000000000") == ("time", 1_700_000_000_000)
    with pytest.raises(ConfigError):
        parse_target("-1")


@pytest.mark.parametrize(
    "words",
    [("topic", verb) for verb in ("list", "show", "create", "alter", "delete")]
    + [("group", verb) for verb in ("list", "show", "create", "alter", "delete", "lag")]
    + [("offset", verb) for verb in ("show", "reset", "clone")],
)
def test_each_verb_explains_itself_with_examples(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([*words, "--help"])
    told = capsys.readouterr().out

    assert status == 0
    assert f"examples:\n  ledgermq {words[0]} {words[1]}" in told
    assert "--json" in told
