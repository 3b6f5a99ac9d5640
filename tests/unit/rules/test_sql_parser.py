"""The parser of SQL-92 filters, against the grammar as LALR(1) reads it, by a parser generator."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from lark import Lark, Tree
from lark import Token as LarkToken
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ledgermq.model.errors import FilterIllegalError
from ledgermq.model.message_filter import EXPRESSION_SIZE_MAX
from ledgermq.rules.sql import sql_filter
from ledgermq.rules.sql.sql_filter import parse_sql
from ledgermq.rules.sql.sql_parser import Token, parse

GRAMMAR = r"""
start: _or
_or: either | _and
either: _and (OR _and)+
_and: both | _equality
both: _equality (AND _equality)+
_equality: equal | is_null | _comparison
equal: _equality (EQUAL | UNEQUAL) _comparison
is_null: _equality IS [NOT] NULL
_comparison: ordered | between | within | _unary
ordered: _comparison (LESS | LESS_EQUAL | GREATER | GREATER_EQUAL) _unary
between: _comparison [NOT] BETWEEN _unary AND _unary
within: _comparison [NOT] IN "(" TEXT ("," TEXT)* ")"
_unary: plus | minus | negation | _primary
plus: "+" _unary
minus: MINUS _unary
negation: NOT _unary
_primary: constant | property | "(" _or ")"
constant: TEXT | WHOLE | FLOATING | TRUE | FALSE | NULL
property: NAME

EQUAL: "="
UNEQUAL: "<>"
LESS: "<"
LESS_EQUAL: "<="
GREATER: ">"
GREATER_EQUAL: ">="
MINUS: "-"
NOT.3: /not(?![a-z0-9_$])/i
AND.3: /and(?![a-z0-9_$])/i
OR.3: /or(?![a-z0-9_$])/i
BETWEEN.3: /between(?![a-z0-9_$])/i
IN.3: /in(?![a-z0-9_$])/i
TRUE.3: /true(?![a-z0-9_$])/i
FALSE.3: /false(?![a-z0-9_$])/i
NULL.3: /null(?![a-z0-9_$])/i
IS.3: /is(?![a-z0-9_$])/i
FLOATING.2: /[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
WHOLE: /0|[1-9][0-9]*l?/i
TEXT: /'(?:''|[^'])*'/
NAME: /[a-z_$][a-z0-9_$]*/i
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.4: /--[^\n\r]*/
BLOCK_COMMENT.4: /\/\*(.|\n)*?\*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

Form = tuple[Any, ...]

NAMES = ("a", "b", "Price", "$x", "order")
CONSTANTS = ("1", "0", "2.5", ".5", "1e3", "5L", "007", "'x'", "'it''s'", "TRUE", "false", "NULL")
JOINS = ("AND", "OR", "NOT", "and", "or", "not", "BETWEEN", "between", "IN", "IS")
SIGNS = ("=", "<>", "<", "<=", ">", ">=", "+", "-", "(", ")", ",", "--", "/*c*/", "/*", "?", "'")
WORDS = (*NAMES, *CONSTANTS, *JOINS, *SIGNS, "1.e")


class Forms:
    """Makes tuples that say what stands where."""

    def constant(self, token: Token) -> Form:
        return ("constant", token.text)

    def property(self, token: Token) -> Form:
        return ("property", token.text)

    def minus(self, sign: Token, operand: Form) -> Form:
        return ("minus", sign.position, operand)

    def negation(self, sign: Token, operand: Form) -> Form:
        return ("negation", sign.position, operand)

    def ordered(self, left: Form, sign: Token, right: Form) -> Form:
        return ("ordered", sign.text, left, right)

    def between(
        self, operand: Form, sign: Token, low: Form, high: Form, *, is_negated: bool
    ) -> Form:
        return ("between", sign.position, is_negated, operand, low, high)

    def within(
        self, operand: Form, sign: Token, texts: Sequence[Token], *, is_negated: bool
    ) -> Form:
        return ("within", sign.position, is_negated, operand, *(one.text for one in texts))

    def equal(self, left: Form, sign: Token, right: Form) -> Form:
        return ("equal", sign.text, left, right)

    def is_null(self, operand: Form, sign: Token, *, is_negated: bool) -> Form:
        return ("is_null", sign.position, is_negated, operand)

    def chain(self, operands: Sequence[Form], signs: Sequence[Token]) -> Form:
        return (signs[0].kind, *operands)


def form(tree: Tree[LarkToken]) -> Form:  # noqa: PLR0911
    """What the parser generator's tree says, as ``Forms`` does."""
    parts = [form(one) if isinstance(one, Tree) else one for one in tree.children]
    match tree.data:
        case "start" | "plus":
            return parts[0]
        case "constant" | "property":
            return (str(tree.data), str(parts[0]))
        case "minus" | "negation":
            return (str(tree.data), parts[0].start_pos, parts[1])
        case "ordered" | "equal":
            return (str(tree.data), str(parts[1]), parts[0], parts[2])
        case "is_null":
            return ("is_null", parts[1].start_pos, parts[2] is not None, parts[0])
        case "between":
            ends = parts[3], parts[5]
            return ("between", parts[2].start_pos, parts[1] is not None, parts[0], *ends)
        case "within":
            texts = map(str, parts[3:])
            return ("within", parts[2].start_pos, parts[1] is not None, parts[0], *texts)
    operands = (one for one in parts if isinstance(one, tuple))
    return ({"either": "OR", "both": "AND"}[str(tree.data)], *operands)


def fault(expression: str, error: UnexpectedInput) -> tuple[int, str]:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return error.token.start_pos or 0, str(error.token)
    if isinstance(error, UnexpectedCharacters):
        position = error.pos_in_stream or 0
        return position, expression[position]
    return len(expression), "end of the expression"


def drawn(chance: random.Random, depth: int) -> str:
    """An expression; the deeper, the more is in it."""
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(("a", "b", "1", "2.5", "'x'", "TRUE", "NULL"))
    shapes = (
        "{} AND {}",
        "{} OR {}",
        "NOT {}",
        "({})",
        "-{}",
        "+ {}",
        "{} = {}",
        "{} <> {}",
        "{} < {}",
        "{} >= {}",
        "{} BETWEEN {} AND {}",
        "{} NOT BETWEEN {} AND {}",
        "{} IN ('x', '5')",
        "{} NOT IN ('x')",
        "{} IS NULL",
        "{} IS NOT NULL",
    )
    shape = chance.choice(shapes)
    return shape.format(*(drawn(chance, depth - 1) for _ in range(shape.count("{}"))))


def expressions(chance: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        if chance.random() < 0.4:
            yield " ".join(chance.choices(WORDS, k=chance.randrange(1, 9)))
            continue
        words = drawn(chance, 4).split(" ")
        if chance.random() < 0.4:
            words.insert(chance.randrange(len(words) + 1), chance.choice(WORDS))
        yield " ".join(words)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_expressions_are_read_and_refused_as_the_grammar_says(seed: int) -> None:
    generated = Lark(GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=True)
    outcomes = set()
    for expression in expressions(random.Random(seed), 500):
        expected: tuple[Any, ...]
        try:
            expected = ("read", form(generated.parse(expression)))
        except UnexpectedInput as error:
            expected = ("refused", *fault(expression, error))
        found: tuple[Any, ...]
        try:
            found = ("read", parse(expression, Forms()))
        except FilterIllegalError as error:
            found = ("refused", error.details["position"], error.details["token"])
        outcomes.add(found[0])

        assert found == expected, expression
    assert outcomes == {"read", "refused"}


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """How many functions of Python and of C were called so far."""
    calls = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    "part",
    ["a OR ", "a = 1 AND ", "(", "- ", "NOT ", "a IN ('x', 'y') OR ", "a IS NULL OR ", "'x", "0",
     "a BETWEEN 1 AND 2 AND ", "/*", "/**/", "a = 12345678 OR "],
)  # fmt: skip
def test_what_it_takes_to_read_an_expression_grows_with_its_length_alone(part: str) -> None:
    taken = []
    for size in (EXPRESSION_SIZE_MAX // 4, EXPRESSION_SIZE_MAX):
        text = (part * size)[: size // len(part) * len(part)]
        with counted() as calls:
            with suppress(FilterIllegalError):
                parse_sql(text + (" a" if len(part) > 2 else ""))
            taken.append(calls())

    assert taken[1] < 5 * taken[0] + 100
    assert taken[1] < 10 * EXPRESSION_SIZE_MAX


def test_filters_are_kept_up_to_a_number_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = sql_filter._Kept()
    monkeypatch.setattr(sql_filter, "_kept", kept)
    monkeypatch.setattr(sql_filter, "KEPT_MAX", 1_000)
    first = parse_sql("price > 5")
    for number in range(100):
        parse_sql(f"a = {number} OR " + "b > 1 OR " * 10 + "c = 'x'")
        still = parse_sql("price > 5")

        assert kept.size <= 1_000
        # It was asked for again and again.
        assert still is first
    assert 1 < len(kept) < 20
