"""SQL-92 filters over the properties of messages: grammar and meaning are RocketMQ's.

An expression is parsed once and becomes a function of decoded properties. The grammar is that of
RocketMQ's ``SelectorParser``: comparisons, ``BETWEEN``, ``IN``, ``IS NULL``, ``AND``, ``OR``,
``NOT``, ``TRUE``, ``FALSE``, numbers, ``'texts'``, names of properties. ``NOT`` binds as tightly
as a sign. What it means:

- a property that is missing is null, a comparison with null is unknown, and ``AND``, ``OR`` and
  ``NOT`` have three values; a message is wanted where the whole is true;
- a property is a text; beside a number or a truth value it becomes one;
- texts are compared for equality; ``<`` and its like need numbers on both sides;
- where a text is no number though one is needed, the whole expression is not fulfilled, whatever
  stands beside it (RocketMQ's evaluation ends there by an exception).

Wider than RocketMQ's, where that one fails by accident: a property beside a whole number may have
64 bits even if the number has 32, ``0.0`` is a number, ``TRUE = p`` is the same as ``p = TRUE``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import cast

from lark import Lark, Token, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError
from lark.visitors import Transformer_NonRecursive

from ledgermq.model.errors import FilterIllegalError
from ledgermq.model.message_filter import EXPRESSION_SIZE_MAX

DEPTH_MAX = 64
"""Operators inside one another; each costs a frame of Python's stack."""

KEPT_MAX = 1_024
"""Expressions that are kept in their parsed form."""

Properties = Mapping[str, str]
Value = None | bool | int | float | str
Evaluate = Callable[[Properties], Value]

_GRAMMAR = r"""
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

_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOATING = re.compile(
    r"[+-]?(?:(?P<digits>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<name>NaN|Infinity))"
)
"""No two loops over digits stand side by side: what is matched may be a property of 32 KiB that
somebody has stored, and the time to match has to grow with its length alone."""

_WHOLE_MIN, _WHOLE_MAX = -(2**63), 2**63 - 1
_WHOLE_DIGITS_MAX = len(str(_WHOLE_MAX))
"""``int`` refuses texts of thousands of digits by an error of its own; none of them is in range."""


class _NotComparableError(Exception):
    """A text is no number, though one is needed: the message is not wanted."""


class _Kind(Enum):
    CONSTANT = auto()
    PROPERTY = auto()
    NUMBER = auto()
    TRUTH = auto()


@dataclass(frozen=True, slots=True)
class _Operand:
    """A part of an expression: what it gives, and what may be done with it."""

    kind: _Kind
    evaluate: Evaluate
    depth: int = 1
    constant: Value = None

    @property
    def is_truth(self) -> bool:
        if self.kind is _Kind.CONSTANT:
            return self.constant is None or isinstance(self.constant, bool)
        return self.kind is _Kind.TRUTH


class SqlFilter:
    """One parsed expression."""

    __slots__ = ("_evaluate", "expression")

    def __init__(self, expression: str, evaluate: Evaluate) -> None:
        self.expression = expression
        self._evaluate = evaluate

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        try:
            return self._evaluate(properties) is True
        except _NotComparableError:
            return False


@lru_cache(maxsize=KEPT_MAX)
def parse_sql(expression: str) -> SqlFilter:
    """The filter that ``expression`` describes; the same one for the same text.

    Raises:
        FilterIllegalError: it is none; names the position (characters from 0) and the token.
    """
    if len(expression.encode(errors="replace")) > EXPRESSION_SIZE_MAX:
        raise FilterIllegalError("SQL expression is too long", limit=EXPRESSION_SIZE_MAX)
    try:
        operand = _compiler().transform(_parser().parse(expression))
    except UnexpectedInput as error:
        raise _syntax_error(expression, error) from None
    except VisitError as error:
        if isinstance(error.orig_exc, FilterIllegalError):
            raise error.orig_exc from None
        # A bug of ours costs the one who sent the expression, and not everybody's process.
        reason = f"{type(error.orig_exc).__name__}: {error.orig_exc}"
        raise FilterIllegalError("SQL expression cannot be compiled", reason=reason) from error
    return SqlFilter(expression, operand.evaluate)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    # Words of the language are never names, wherever they stand.
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=True)


@lru_cache(maxsize=1)
def _compiler() -> Transformer_NonRecursive[Token, _Operand]:
    return _Compiler()


def _syntax_error(expression: str, error: UnexpectedInput) -> FilterIllegalError:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        token, position = str(error.token), error.token.start_pos
    elif isinstance(error, UnexpectedCharacters):
        position = error.pos_in_stream or 0
        token = expression[position]
    else:
        token, position = "end of the expression", len(expression)
    return FilterIllegalError(
        "SQL expression cannot be read", position=position, token=token, expression=expression
    )


def _refusal(reason: str, token: Token) -> FilterIllegalError:
    return FilterIllegalError(
        f"SQL expression: {reason}", position=token.start_pos, token=str(token)
    )


def _joined(operands: Sequence[_Operand], evaluate: Evaluate, token: Token) -> _Operand:
    """What an operator makes of ``operands``: true, false or unknown."""
    depth = 1 + max(operand.depth for operand in operands)
    if depth > DEPTH_MAX:
        raise _refusal(f"more than {DEPTH_MAX} operators inside one another", token)
    return _Operand(_Kind.TRUTH, evaluate, depth)


def _truth(operand: _Operand, token: Token) -> Evaluate:
    """``operand`` as true, false or unknown; a property, which is a text, is never true."""
    if operand.is_truth:
        return operand.evaluate
    if operand.kind is not _Kind.PROPERTY:
        raise _refusal("a truth value is needed here", token)
    read = operand.evaluate
    return lambda properties: None if read(properties) is None else False


@v_args(inline=True)
class _Compiler(Transformer_NonRecursive[Token, _Operand]):
    """Makes operands of the parser's tree."""

    def start(self, operand: _Operand) -> _Operand:
        end = Token("END", "", start_pos=0)
        return _Operand(_Kind.TRUTH, _truth(operand, end), operand.depth)

    def either(self, *parts: _Operand | Token) -> _Operand:
        return _chain(parts, decisive=True)

    def both(self, *parts: _Operand | Token) -> _Operand:
        return _chain(parts, decisive=False)

    def equal(self, left: _Operand, sign: Token, right: _Operand) -> _Operand:
        constants = [one for one in (left, right) if one.kind is _Kind.CONSTANT]
        if any(one.constant is None for one in constants):
            raise _refusal("NULL cannot be compared: use IS NULL", sign)
        if len(constants) == 2 and left.is_truth and not right.is_truth:
            raise _refusal("a truth value cannot be compared with another constant", sign)
        first, second = left.evaluate, right.evaluate
        is_wanted = sign.type == "EQUAL"

        def evaluate(properties: Properties) -> Value:
            same = _equal(first(properties), second(properties))
            return same if same is None else same is is_wanted

        return _joined((left, right), evaluate, sign)

    def is_null(self, operand: _Operand, sign: Token, negated: Token | None, _: Token) -> _Operand:
        read, wanted = operand.evaluate, negated is None
        return _joined((operand,), lambda properties: (read(properties) is None) is wanted, sign)

    def ordered(self, left: _Operand, sign: Token, right: _Operand) -> _Operand:
        return _ordered(left, sign, right)

    def between(
        self,
        operand: _Operand,
        negated: Token | None,
        sign: Token,
        low: _Operand,
        _: Token,
        high: _Operand,
    ) -> _Operand:
        _check_number(low, sign)
        _check_number(high, sign)
        if low.kind is high.kind is _Kind.CONSTANT and _compare(high.constant, low.constant) < 0:
            raise _refusal("the first value of BETWEEN is above the second one", sign)
        signs = ("LESS", "GREATER") if negated else ("GREATER_EQUAL", "LESS_EQUAL")
        below, above = (Token(kind, str(sign), start_pos=sign.start_pos) for kind in signs)
        parts = (_ordered(operand, below, low), sign, _ordered(operand, above, high))
        return _chain(parts, decisive=negated is not None)

    def within(
        self, operand: _Operand, negated: Token | None, sign: Token, *texts: Token
    ) -> _Operand:
        if operand.kind is not _Kind.PROPERTY:
            raise _refusal("a property is needed before IN", sign)
        wanted, read, outcome = frozenset(map(_text, texts)), operand.evaluate, negated is None

        def evaluate(properties: Properties) -> Value:
            value = read(properties)
            return None if value is None else (value in wanted) is outcome

        return _joined((operand,), evaluate, sign)

    def plus(self, operand: _Operand) -> _Operand:
        return operand

    def minus(self, sign: Token, operand: _Operand) -> _Operand:
        value = operand.constant
        if _is_number(value):
            negative = -cast(float, value)
            return _Operand(_Kind.CONSTANT, lambda _: negative, 1, negative)
        # A text has no negative, and a truth value neither.
        nothing = _joined((operand,), lambda _: None, sign)
        return _Operand(_Kind.NUMBER, nothing.evaluate, nothing.depth)

    def negation(self, sign: Token, operand: _Operand) -> _Operand:
        read = _truth(operand, sign)

        def evaluate(properties: Properties) -> Value:
            value = read(properties)
            return None if value is None else not value

        return _joined((operand,), evaluate, sign)

    def constant(self, token: Token) -> _Operand:
        value = _constant(token)
        return _Operand(_Kind.CONSTANT, lambda _: value, 1, value)

    def property(self, token: Token) -> _Operand:
        name = str(token)
        return _Operand(_Kind.PROPERTY, lambda properties: properties.get(name))


def _chain(parts: Sequence[_Operand | Token], *, decisive: bool) -> _Operand:
    """``AND`` (``decisive`` is false) or ``OR``; a token stands between each two operands."""
    operands = [part for part in parts if isinstance(part, _Operand)]
    tokens = [part for part in parts if isinstance(part, Token)]
    reads = [_truth(operand, tokens[max(0, row - 1)]) for row, operand in enumerate(operands)]

    def evaluate(properties: Properties) -> Value:
        outcome: Value = not decisive
        for read in reads:
            value = read(properties)
            if value is decisive:
                return decisive
            if value is None:
                outcome = None
        return outcome

    return _joined(operands, evaluate, tokens[0])


_HOLDS: Mapping[str, Callable[[int], bool]] = {
    "LESS": lambda order: order < 0,
    "LESS_EQUAL": lambda order: order <= 0,
    "GREATER": lambda order: order > 0,
    "GREATER_EQUAL": lambda order: order >= 0,
}


def _ordered(left: _Operand, sign: Token, right: _Operand) -> _Operand:
    _check_number(left, sign)
    _check_number(right, sign)
    first, second, holds = left.evaluate, right.evaluate, _HOLDS[sign.type]

    def evaluate(properties: Properties) -> Value:
        low = first(properties)
        if low is None:
            return None
        high = second(properties)
        if high is None:
            return None
        if isinstance(low, str) and isinstance(high, str):
            low, high = _floating_of(low), _floating_of(high)
        return holds(_compare(low, high))

    return _joined((left, right), evaluate, sign)


def _check_number(operand: _Operand, sign: Token) -> None:
    """Refuse what can never be a number."""
    if operand.kind is _Kind.CONSTANT and not _is_number(operand.constant):
        raise _refusal("only numbers and properties can be more or less than another", sign)
    if operand.kind is _Kind.TRUTH:
        raise _refusal("a truth value is not more or less than another", sign)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _constant(token: Token) -> Value:
    match token.type:
        case "TRUE":
            return True
        case "FALSE":
            return False
        case "NULL":
            return None
        case "TEXT":
            return _text(token)
        case "WHOLE":
            whole = _whole_of(token.rstrip("lL"))
            if whole is None:
                raise _refusal(f"whole number above {_WHOLE_MAX}", token)
            return whole
    number = float(token)
    if math.isinf(number):
        raise _refusal("number too large", token)
    return number


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _equal(left: Value, right: Value) -> bool | None:
    """As RocketMQ's ``EqualExpression``: null beside a value is unknown only on the left."""
    if left is None or right is None:
        if left is right:
            return True
        return None if left is None else False
    if type(left) is type(right) and not isinstance(left, float):
        return left == right
    return _compare(left, right) == 0


def _compare(left: Value, right: Value) -> int:
    """Less than 0, 0, or more than 0; texts become what the other side is."""
    if isinstance(left, str):
        left = _converted(left, right)
    elif isinstance(right, str):
        right = _converted(right, left)
    if isinstance(left, bool) or isinstance(right, bool):
        # A truth value and a number are never the same.
        return 0 if left is right else -1
    first, second = cast("int | float", left), cast("int | float", right)
    if isinstance(first, int) and isinstance(second, int):
        return (first > second) - (first < second)
    return _compare_floating(float(first), float(second))


def _compare_floating(left: float, right: float) -> int:
    """As Java's ``Double.compareTo``: NaN equals itself and is above all, -0.0 is below 0.0."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    if left == right == 0:
        return int(math.copysign(1, left) - math.copysign(1, right))
    return (left > right) - (left < right)


def _converted(text: str, other: Value) -> Value:
    """A text as what it is compared with."""
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, int):
        whole = _whole_of(text)
        if whole is None:
            raise _NotComparableError
        return whole
    assert isinstance(other, float), other
    return _floating_of(text)


def _whole_of(text: str) -> int | None:
    """As Java's ``Long.parseLong``: ``None`` for what is no whole number of 64 bits."""
    if _WHOLE.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _WHOLE_DIGITS_MAX:
        return None
    whole = -int(digits) if text.startswith("-") else int(digits)
    return whole if _WHOLE_MIN <= whole <= _WHOLE_MAX else None


def _floating_of(text: str) -> float:
    """As Java's ``Double.valueOf``, but for hexadecimal ones."""
    text = text.strip()
    match = _FLOATING.fullmatch(text)
    if match is None:
        raise _NotComparableError
    number = float(match["digits"] or match["name"])
    return -number if text.startswith("-") else number
