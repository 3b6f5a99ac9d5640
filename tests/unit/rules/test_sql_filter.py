"""SQL-92 filters: RocketMQ's semantics, against a plain evaluator of the same rules."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.model.errors import FilterIllegalError
from ledgermq.rules.sql import sql_filter
from ledgermq.rules.sql.sql_filter import OPERATORS_NESTED_MAX, parse_sql

NAMES = ("a", "b", "Price", "_x$1", "notable")
TEXTS = ("x", "it's", "5", "-7", "2.5", "true", "FALSE", "", " 3 ", "NaN", "1e3", "1_000", "Ü")


class NoNumberError(Exception):
    """Java's NumberFormatException: nothing of the expression is fulfilled."""


# The reference: a tree of tuples, read as the rules are written.


def reference(tree: tuple[Any, ...], properties: Mapping[str, str]) -> bool:
    try:
        return truth(tree, properties) is True
    except NoNumberError:
        return False


def truth(tree: tuple[Any, ...], properties: Mapping[str, str]) -> bool | None:
    kind = tree[0]
    if kind == "property":
        return None if properties.get(tree[1]) is None else False
    found = value(tree, properties)
    assert found is None or isinstance(found, bool)
    return found


def value(tree: tuple[Any, ...], properties: Mapping[str, str]) -> Any:  # noqa: PLR0911
    kind = tree[0]
    if kind == "constant":
        return tree[1]
    if kind == "property":
        return properties.get(tree[1])
    if kind in ("and", "or"):
        decides = kind == "or"
        left = truth(tree[1], properties)
        if left is decides:
            return decides
        right = truth(tree[2], properties)
        if right is decides:
            return decides
        return None if left is None or right is None else not decides
    if kind == "not":
        inner = truth(tree[1], properties)
        return None if inner is None else not inner
    if kind == "null":
        return (value(tree[1], properties) is None) is not tree[2]
    if kind == "in":
        found = value(tree[1], properties)
        return None if found is None else (found in tree[2]) is not tree[3]
    if kind == "between":
        _, inner, low, high, is_not = tree
        low_sign, high_sign = ("<", ">") if is_not else (">=", "<=")
        joined = ("compare", inner, low_sign, low), ("compare", inner, high_sign, high)
        return value(("or" if is_not else "and", *joined), properties)
    assert kind == "compare", kind
    return compared(value(tree[1], properties), tree[2], value(tree[3], properties))


def compared(left: Any, sign: str, right: Any) -> bool | None:  # noqa: PLR0911
    if sign in ("=", "<>"):
        if left is None and right is None:
            return sign == "="
        if left is None:
            return None
        if right is None:
            return sign == "<>"
        if type(left) is type(right) is str:
            return (left == right) is (sign == "=")
    elif left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = java_double(left), java_double(right)
    elif isinstance(left, str):
        left = as_other(left, right)
    elif isinstance(right, str):
        right = as_other(right, left)
    if isinstance(left, bool) is not isinstance(right, bool):
        return sign == "<>"
    order = java_order(left, right)
    return {"=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0,
            ">": order > 0, ">=": order >= 0}[sign]  # fmt: skip


def java_order(left: Any, right: Any) -> int:
    if math.isnan(left) or math.isnan(right):
        return int(math.isnan(left)) - int(math.isnan(right))
    return (left > right) - (left < right)


def as_other(text: str, other: Any) -> Any:
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, int):
        if not re.fullmatch(r"[+-]?\d+", text, re.ASCII) or not -(2**63) <= int(text) < 2**63:
            raise NoNumberError
        return int(text)
    return java_double(text)


def java_double(text: str) -> float:
    if "_" in text or text.strip().lower() in ("inf", "+inf", "-inf", "infinity", "nan", ""):
        if text.strip() == "NaN":
            return math.nan
        raise NoNumberError
    try:
        return float(text)
    except ValueError:
        raise NoNumberError from None


_property = st.sampled_from(NAMES).map(lambda name: ("property", name))
_number = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.integers(-9, 9),
    st.floats(-1e6, 1e6).map(lambda number: number + 0.0),
).map(lambda number: ("constant", number))
_text = st.sampled_from(TEXTS).map(lambda text: ("constant", text))
_truth = st.booleans().map(lambda value: ("constant", value))
_ordering = st.tuples(
    st.just("compare"),
    st.one_of(_property, _number),
    st.sampled_from(["<", "<=", ">", ">="]),
    st.one_of(_property, _number),
)
_equality = st.tuples(
    st.just("compare"), _property, st.sampled_from(["=", "<>"]),
    st.one_of(_property, _number, _text, _truth),
)  # fmt: skip
_leaf = st.one_of(
    _ordering,
    _equality,
    st.tuples(st.just("null"), _property, st.booleans()),
    st.tuples(
        st.just("in"), _property, st.lists(st.sampled_from(TEXTS), min_size=1), st.booleans()
    ),
    st.tuples(
        st.just("between"), _property, _property, st.one_of(_property, _number), st.booleans()
    ),
    _property,
    _truth,
)
_trees = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
    ),
    max_leaves=12,
)
_properties = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([t for t in TEXTS if t]))


def rendered(tree: tuple[Any, ...]) -> str:  # noqa: PLR0911
    kind = tree[0]
    if kind == "constant":
        constant = tree[1]
        if isinstance(constant, str):
            return "'" + constant.replace("'", "''") + "'"
        return repr(constant)
    if kind == "property":
        return str(tree[1])
    if kind in ("and", "or"):
        return f"({rendered(tree[1])}) {kind} ({rendered(tree[2])})"
    if kind == "not":
        return f"NOT ({rendered(tree[1])})"
    if kind == "null":
        return f"{rendered(tree[1])} is{' Not' if tree[2] else ''} NULL"
    if kind == "in":
        texts = ", ".join(rendered(("constant", text)) for text in tree[2])
        return f"{rendered(tree[1])} {'not ' if tree[3] else ''}IN ({texts})"
    if kind == "between":
        _, inner, low, high, is_not = tree
        word = "NOT BETWEEN" if is_not else "between"
        return f"{rendered(inner)} {word} {rendered(low)} AND {rendered(high)}"
    return f"{rendered(tree[1])} {tree[2]} {rendered(tree[3])}"


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(_trees, _properties)
def test_an_expression_means_what_the_rules_say(
    tree: tuple[Any, ...], properties: dict[str, str]
) -> None:
    wanted = parse_sql(rendered(tree))

    assert wanted.matches(properties) is reference(tree, properties)


@settings(max_examples=100, deadline=None)
@given(st.text("ab()'=<>0.5e-+ ,\nNOTINULLSADR/*", max_size=40))
def test_any_text_is_a_filter_or_is_refused_with_a_position(text: str) -> None:
    try:
        parse_sql(text)
    except FilterIllegalError as error:
        position = error.details["position"]
        assert isinstance(position, int)
        assert 0 <= position <= len(text)
        assert "token" in error.details


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        ("a = '5' AND b > 3", {"a": "5", "b": "4"}, True),
        ("a = '5' AND b > 3", {"a": "5"}, False),
        ("NOT (b > 3)", {}, False),
        ("b > 3 OR b IS NULL", {}, True),
        ("a <> 'x'", {}, False),
        ("'x' <> a", {}, True),
        ("a = b", {}, True),
        ("a > 5 OR TAGS = 'x'", {"a": "six", "TAGS": "x"}, False),
        ("TAGS = 'x' OR a > 5", {"a": "six", "TAGS": "x"}, True),
        ("a = 2", {"a": "2.0"}, False),
        ("a = 2.0", {"a": "2"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a IN ('10', '11')", {"a": "10"}, True),
        ("a NOT IN ('10', '11')", {}, False),
        ("a = TRUE", {"a": "TrUe"}, True),
        ("a = FALSE", {"a": "no"}, True),
        ("TRUE = a", {"a": "true"}, True),
        ("a > 0.0", {"a": "5"}, True),
        ("a", {"a": "true"}, False),
        ("NOT a = 5", {"a": "6"}, False),
        ("-a < 0", {"a": "6"}, False),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("a = -9223372036854775807", {"a": "-9223372036854775807"}, True),
        ("a BETWEEN 1 AND 5 -- and no more", {"a": "5"}, True),
        ("a /* of\nthe */ NOT BETWEEN 1 AND 5", {"a": "5"}, False),
        ("android = 'x' AND inner_ = 'y'", {"android": "x", "inner_": "y"}, True),
        ("TRUE", {}, True),
        ("NULL", {}, False),
        ("A = 'x'", {"a": "x"}, False),
        ("(" * 200 + "a = 'x'" + ")" * 200, {"a": "x"}, True),
    ],
)
def test_what_users_meet(expression: str, properties: dict[str, str], wanted: bool) -> None:
    found = parse_sql(expression).matches(properties)

    assert found is wanted


@pytest.mark.parametrize(
    ("expression", "position", "token"),
    [
        ("", 0, "end of the expression"),
        ("a >", 3, "end of the expression"),
        ("a > 5 AND AND b", 10, "AND"),
        ("a ? 5", 2, "?"),
        ("a = 'x", 4, "'"),
        ("a LIKE 'x%'", 2, "LIKE"),
        ("a > 'x'", 2, ">"),
        ("a = NULL", 2, "="),
        ("a BETWEEN 5 AND 1", 2, "BETWEEN"),
        ("'x' IN ('x')", 4, "IN"),
        ("a > 1 > 0", 6, ">"),
        ("a = 9223372036854775808", 4, "9223372036854775808"),
        ("a = 1e999", 4, "1e999"),
        ("a IN (5)", 6, "5"),
        ("NOT " * OPERATORS_NESTED_MAX + "a", 0, "NOT"),
        ("a > 5 AND or = 'x'", 10, "or"),
        ("a > --4", 7, "end of the expression"),
    ],
)
def test_a_refusal_names_position_and_token(expression: str, position: int, token: str) -> None:
    with pytest.raises(FilterIllegalError) as caught:
        parse_sql(expression)

    assert (caught.value.details["position"], caught.value.details["token"]) == (position, token)


@pytest.mark.parametrize(
    "expression",
    ["NOT " * 2_000 + "a", "- " * 4_000 + "a > 0", "a BETWEEN 1 AND " * 450 + "2", "(" * 8_000],
)
def test_no_expression_is_too_deep_to_be_refused(expression: str) -> None:
    with pytest.raises(FilterIllegalError):
        parse_sql(expression)


def test_many_conditions_in_a_row_are_no_depth() -> None:
    wanted = parse_sql(" AND ".join(f"a <> '{number}'" for number in range(500)))

    assert wanted.matches({"a": "x"})
    assert not wanted.matches({"a": "499"})


def test_the_same_text_is_parsed_once() -> None:
    assert parse_sql("price > 5") is parse_sql("price > 5")


def test_an_expression_has_a_limit() -> None:
    with pytest.raises(FilterIllegalError, match="limit=8192"):
        parse_sql("a = '" + "x" * 8_192 + "'")


@pytest.mark.parametrize(
    "expression", ["a > 5", "a = 5", "5 < a", "a BETWEEN 1 AND 9", "-a > 5", "a <> 7", "a > 5.0"]
)
@pytest.mark.parametrize("text", ["1" * 5_000, "-" + "9" * 32_000, "1" * 1_000_000 + "x"])
def test_a_stored_text_of_thousands_of_digits_is_an_answer_and_no_error(
    expression: str, text: str
) -> None:
    """Python reads no whole number of more than 4,300 digits. A match whose time grew with the
    square of the length would take hours for the longest of these, and half a minute for 32 KiB.
    """
    selected = parse_sql(expression).matches({"a": text})

    assert isinstance(selected, bool)
    assert not (selected and "." not in expression and "<>" not in expression)


@pytest.mark.parametrize("constant", ["5", "5.5"])
def test_a_long_text_is_read_as_a_number_once_for_a_message(constant: str) -> None:
    kept = sql_filter._kept_whole, sql_filter._kept_floating
    before = sum(one.cache_info().misses for one in kept)
    wanted = parse_sql(" AND ".join(f"a <> {constant}{digit}" for digit in range(1, 500)))
    properties = {"a": "0" * 32_000 + constant}

    assert wanted.matches(properties)
    assert sum(one.cache_info().misses for one in kept) == before + 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0" * 5_000 + "6", True),
        ("+" + "0" * 5_000 + "6", True),
        ("-" + "0" * 5_000 + "6", False),
        (str(2**63 - 1), True),
        (str(2**63), False),
    ],
)
def test_leading_zeros_are_no_digits_that_count(text: str, wanted: bool) -> None:
    assert parse_sql("a > 5").matches({"a": text}) is wanted


@pytest.mark.parametrize("expression", ["a = " + "1" * 5_000, "a > -" + "9" * 8_000])
def test_an_expression_of_thousands_of_digits_is_refused(expression: str) -> None:
    with pytest.raises(FilterIllegalError, match="whole number above"):
        parse_sql(expression)


@pytest.mark.parametrize(
    ("text", "is_wanted"),
    [(" 5\t", True), ("5\n", True), ("5\u00a0", False), ("\u30005", False), ("5\u2003", False)],
)
def test_blanks_around_a_floating_number_are_javas(text: str, is_wanted: bool) -> None:
    assert parse_sql("a < 9.0").matches({"a": text}) is is_wanted
