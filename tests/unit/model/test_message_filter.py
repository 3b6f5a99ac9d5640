"""Tag expressions are read as RocketMQ's ``FilterAPI`` reads them."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import FilterIllegalError
from ledgermq.model.message_filter import EVERYTHING, EXPRESSION_SIZE_MAX, TAGS_MAX, MessageFilter


@pytest.mark.parametrize("expression", ["*", "", " * "])
def test_a_star_alone_is_everything(expression: str) -> None:
    assert MessageFilter.by_tags(expression) == EVERYTHING


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("A", {"A"}),
        ("A||B", {"A", "B"}),
        (" A || B  ||", {"A", "B"}),
        ("A || A", {"A"}),
        ("A || *", {"A", "*"}),
        ("two words || B", {"two words", "B"}),
    ],
)
def test_a_list_has_the_tags_between_its_bars(expression: str, tags: set[str]) -> None:
    wanted = MessageFilter.by_tags(expression)

    assert wanted.tags == tags
    assert wanted.sql == ""


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_bars_without_tags_are_refused(expression: str) -> None:
    with pytest.raises(FilterIllegalError, match="no tag"):
        MessageFilter.by_tags(expression)


def test_tags_are_joined_by_or_alone_but_for_rocketmqs_clients() -> None:
    with pytest.raises(FilterIllegalError, match=r"joined by \|\| alone; .* by_sql"):
        MessageFilter.by_tags("a && b || c")

    assert MessageFilter.as_rocketmq("a && b || c").tags == {"a && b", "c"}


def test_tags_have_a_limit() -> None:
    with pytest.raises(FilterIllegalError, match=f"limit={TAGS_MAX}"):
        MessageFilter.by_tags("||".join(str(number) for number in range(TAGS_MAX + 1)))


@pytest.mark.parametrize("expression", ["", " \n", "a" * (EXPRESSION_SIZE_MAX + 1)])
def test_an_sql_expression_is_neither_empty_nor_endless(expression: str) -> None:
    with pytest.raises(FilterIllegalError, match=f"limit={EXPRESSION_SIZE_MAX}"):
        MessageFilter.by_sql(expression)


def test_an_sql_expression_has_no_tags() -> None:
    wanted = MessageFilter.by_sql("a > 5")

    assert (wanted.sql, wanted.tags) == ("a > 5", frozenset())
