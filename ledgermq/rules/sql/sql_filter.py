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
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, cast

from ledgermq.model.errors import FilterIllegalError
from ledgermq.model.message_filter import EXPRESSION_SIZE_MAX
from ledgermq.rules.sql.sql_parser import Token, parse

OPERATORS_NESTED_MAX = 64
"""Operators inside one another; each costs a frame of Python's stack."""

KEPT_MAX = 128 * 1024
"""Characters of the expressions that are kept in their parsed form: each costs some 60 bytes, and
Python's collector looks through all of them now and then, while nobody is served."""

LONG_MIN = 512
LONG_KEPT_MAX = 64
"""Texts from so many characters on are read as numbers once for a message, not for each comparison
of an expression: it has no more of them than are kept."""

Properties = Mapping[str, str]
Value = None | bool | int | float | str
Evaluate = Callable[[Properties], Value]

_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOATING = re.compile(
    r"[+-]?(?:(?P<digits>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<name>NaN|Infinity))"
)
"""No two loops over digits stand side by side: what is matched may be a property of 32 KiB that
somebody has stored, and the time to match has to grow with its length alone."""

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""Characters around a floating number that ``Double.parseDouble`` passes over; a no-break space is
none."""

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


class _Operand(NamedTuple):
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


def parse_sql(expression: str) -> SqlFilter:
    """The filter that ``expression`` describes; the same one for the same text, while it is kept.

    Raises:
        FilterIllegalError: it is none; names the position (characters from 0) and the token.
    """
    return _kept.get(expression) or _kept.add(_parsed(expression))


def _parsed(expression: str) -> SqlFilter:
    if len(expression.encode(errors="replace")) > EXPRESSION_SIZE_MAX:
        raise FilterIllegalError("SQL expression is too long", limit=EXPRESSION_SIZE_MAX)
    operand = parse(expression, _COMPILER)
    return SqlFilter(expression, _truth(operand, Token("END", "", 0)))


class _Kept:
    """Filters that were asked for last.

    Invariant: ``size`` is the number of characters of all, and at most ``KEPT_MAX``.
    """

    def __init__(self) -> None:
        self.size = 0
        self._filters: OrderedDict[str, SqlFilter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._filters)

    def get(self, expression: str) -> SqlFilter | None:
        found = self._filters.get(expression)
        if found is not None:
            self._filters.move_to_end(expression)
        return found

    def add(self, fresh: SqlFilter) -> SqlFilter:
        self._filters[fresh.expression] = fresh
        self.size += len(fresh.expression)
        while self.size > KEPT_MAX:
            oldest, _ = self._filters.popitem(last=False)
            self.size -= len(oldest)
        return fresh


_kept = _Kept()


def _refusal(reason: str, token: Token) -> FilterIllegalError:
    return FilterIllegalError(
        f"SQL expression: {reason}", position=token.position, token=token.text
    )


def _joined(operands: Sequence[_Operand], evaluate: Evaluate, token: Token) -> _Operand:
    """What an operator makes of ``operands``: true, false or unknown."""
    depth = 1 + max(operand.depth for operand in operands)
    if depth > OPERATORS_NESTED_MAX:
        raise _refusal(f"more than {OPERATORS_NESTED_MAX} operators inside one another", token)
    return _Operand(_Kind.TRUTH, evaluate, depth)


def _truth(operand: _Operand, token: Token) -> Evaluate:
    """``operand`` as true, false or unknown; a property, which is a text, is never true."""
    if operand.is_truth:
        return operand.evaluate
    if operand.kind is not _Kind.PROPERTY:
        raise _refusal("a truth value is needed here", token)
    read = operand.evaluate
    return lambda properties: None if read(properties) is None else False


class _Compiler:
    """Makes operands of what the parser finds (``sql_parser.Makes``)."""

    def chain(self, operands: Sequence[_Operand], signs: Sequence[Token]) -> _Operand:
        return _chain(operands, signs, decisive=signs[0].kind == "OR")

    def equal(self, left: _Operand, sign: Token, right: _Operand) -> _Operand:
        constants = [one for one in (left, right) if one.kind is _Kind.CONSTANT]
        if any(one.constant is None for one in constants):
            raise _refusal("NULL cannot be compared: use IS NULL", sign)
        if len(constants) == 2 and left.is_truth and not right.is_truth:
            raise _refusal("a truth value cannot be compared with another constant", sign)
        first, second = left.evaluate, right.evaluate
        is_wanted = sign.kind == "="

        def evaluate(properties: Properties) -> Value:
            same = _equal(first(properties), second(properties))
            return same if same is None else same is is_wanted

        return _joined((left, right), evaluate, sign)

    def is_null(self, operand: _Operand, sign: Token, *, is_negated: bool) -> _Operand:
        read, wanted = operand.evaluate, not is_negated
        return _joined((operand,), lambda properties: (read(properties) is None) is wanted, sign)

    def ordered(self, left: _Operand, sign: Token, right: _Operand) -> _Operand:
        return _ordered(left, sign, right)

    def between(
        self, operand: _Operand, sign: Token, low: _Operand, high: _Operand, *, is_negated: bool
    ) -> _Operand:
        _check_number(low, sign)
        _check_number(high, sign)
        if low.kind is high.kind is _Kind.CONSTANT and _compare(high.constant, low.constant) < 0:
            raise _refusal("the first value of BETWEEN is above the second one", sign)
        below, above = (
            sign._replace(kind=kind) for kind in (("<", ">") if is_negated else (">=", "<="))
        )
        ends = _ordered(operand, below, low), _ordered(operand, above, high)
        return _chain(ends, [sign], decisive=is_negated)

    def within(
        self, operand: _Operand, sign: Token, texts: Sequence[Token], *, is_negated: bool
    ) -> _Operand:
        if operand.kind is not _Kind.PROPERTY:
            raise _refusal("a property is needed before IN", sign)
        wanted, read, outcome = frozenset(map(_text, texts)), operand.evaluate, not is_negated

        def evaluate(properties: Properties) -> Value:
            value = read(properties)
            return None if value is None else (value in wanted) is outcome

        return _joined((operand,), evaluate, sign)

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
        name = token.text
        return _Operand(_Kind.PROPERTY, lambda properties: properties.get(name))


_COMPILER = _Compiler()


def _chain(operands: Sequence[_Operand], signs: Sequence[Token], *, decisive: bool) -> _Operand:
    """``AND`` (``decisive`` is false) or ``OR``; a sign stands between each two operands."""
    reads = [_truth(one, signs[max(0, row - 1)]) for row, one in enumerate(operands)]

    def evaluate(properties: Properties) -> Value:
        outcome: Value = not decisive
        for read in reads:
            value = read(properties)
            if value is decisive:
                return decisive
            if value is None:
                outcome = None
        return outcome

    return _joined(operands, evaluate, signs[0])


_HOLDS: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _ordered(left: _Operand, sign: Token, right: _Operand) -> _Operand:
    _check_number(left, sign)
    _check_number(right, sign)
    first, second, holds = left.evaluate, right.evaluate, _HOLDS[sign.kind]

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
    match token.kind:
        case "TRUE":
            return True
        case "FALSE":
            return False
        case "NULL":
            return None
        case "TEXT":
            return _text(token)
        case "WHOLE":
            whole = _whole_of(token.text.rstrip("lL"))
            if whole is None:
                raise _refusal(f"whole number above {_WHOLE_MAX}", token)
            return whole
    number = float(token.text)
    if math.isinf(number):
        raise _refusal("number too large", token)
    return number


def _text(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _equal(left: Value, right: Value) -> bool | None:
    """Whether two values are equal in RocketMQ's ``EqualExpression``: null beside a value is
    unknown (None) only on the left.
    """
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
    """Order of two numbers in Java's ``Double.compareTo``: NaN equals itself and is above all, -0.0
    is below 0.0.
    """
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
    """The number that Java's ``Long.parseLong`` reads; ``None`` for what is no whole number of 64
    bits.
    """
    return _whole(text) if len(text) < LONG_MIN else _kept_whole(text)


def _whole(text: str) -> int | None:
    if _WHOLE.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _WHOLE_DIGITS_MAX:
        return None
    whole = -int(digits) if text.startswith("-") else int(digits)
    return whole if _WHOLE_MIN <= whole <= _WHOLE_MAX else None


def _floating_of(text: str) -> float:
    """The number that Java's ``Double.valueOf`` reads, but for hexadecimal ones.

    Raises:
        _NotComparableError: the text is no such number.
    """
    number = _floating(text) if len(text) < LONG_MIN else _kept_floating(text)
    if number is None:
        raise _NotComparableError
    return number


def _floating(text: str) -> float | None:
    text = text.strip(_JAVA_BLANKS)
    match = _FLOATING.fullmatch(text)
    if match is None:
        return None
    number = float(match["digits"] or match["name"])
    return -number if text.startswith("-") else number


_kept_whole = lru_cache(LONG_KEPT_MAX)(_whole)
_kept_floating = lru_cache(LONG_KEPT_MAX)(_floating)
