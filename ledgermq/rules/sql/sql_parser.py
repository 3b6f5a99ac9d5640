"""Parser of SQL-92 filters: the grammar alone, whatever an expression becomes.

    or:         and (OR and)*
    and:        equality (AND equality)*
    equality:   comparison | equality (= | <>) comparison | equality IS [NOT] NULL
    comparison: unary | comparison (< | <= | > | >=) unary
                | comparison [NOT] BETWEEN unary AND unary | comparison [NOT] IN (TEXT, ...)
    unary:      primary | + unary | - unary | NOT unary
    primary:    TEXT | number | TRUE | FALSE | NULL | NAME | (or)

Read token by token, with what is not whole yet on a stack of our own: a text of 8 KiB costs some
milliseconds, however deep it is. Words of the language are never names, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from ledgermq.model.errors import FilterIllegalError

Operand = TypeVar("Operand")

_TOKEN = re.compile(
    r"(?P<BLANK>(?:[ \t\n\r\f]+|--[^\n\r]*|/\*[\s\S]*?\*/)+)"
    r"|(?P<NAME>[a-z_$][a-z0-9_$]*)"
    r"|(?P<FLOATING>[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?"
    r"|[0-9]+e[+-]?[0-9]+)"
    r"|(?P<WHOLE>0|[1-9][0-9]*l?)"
    r"|(?P<TEXT>'(?:''|[^'])*')"
    r"|(?P<SIGN><=|>=|<>|[-+=<>(),])",
    re.IGNORECASE | re.ASCII,
)

_WORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
_ORDERS = frozenset({"<", "<=", ">", ">="})
_EQUALITIES = frozenset({"=", "<>"})
_PREFIXES = frozenset({"+", "-", "NOT"})
_OPENING = _PREFIXES | {"("}
_CONSTANTS = frozenset({"TEXT", "WHOLE", "FLOATING", "TRUE", "FALSE", "NULL"})
_LOW, _HIGH = "low", "high"
"""Kinds of frames: the first value of BETWEEN is being read, or the second one."""


class Token(NamedTuple):
    """One word or sign.

    Attributes:
        kind: the word or sign itself, or ``NAME``, ``TEXT``, ``WHOLE``, ``FLOATING``, ``END``.
        text: as it was written.
        position: in characters from 0.
    """

    kind: str
    text: str
    position: int


class Makes(Protocol[Operand]):
    """What becomes of each form; called from the inside out, and from left to right."""

    def constant(self, token: Token) -> Operand:
        """A text, a number, TRUE, FALSE or NULL."""
        ...

    def property(self, token: Token) -> Operand:
        """A name."""
        ...

    def minus(self, sign: Token, operand: Operand) -> Operand:
        """``- operand``."""
        ...

    def negation(self, sign: Token, operand: Operand) -> Operand:
        """``NOT operand``."""
        ...

    def ordered(self, left: Operand, sign: Token, right: Operand) -> Operand:
        """``left < right``, and its like."""
        ...

    def between(
        self, operand: Operand, sign: Token, low: Operand, high: Operand, *, is_negated: bool
    ) -> Operand:
        """``operand [NOT] BETWEEN low AND high``."""
        ...

    def within(
        self, operand: Operand, sign: Token, texts: Sequence[Token], *, is_negated: bool
    ) -> Operand:
        """``operand [NOT] IN (texts)``."""
        ...

    def equal(self, left: Operand, sign: Token, right: Operand) -> Operand:
        """``left = right`` or ``left <> right``."""
        ...

    def is_null(self, operand: Operand, sign: Token, *, is_negated: bool) -> Operand:
        """``operand IS [NOT] NULL``."""
        ...

    def chain(self, operands: Sequence[Operand], signs: Sequence[Token]) -> Operand:
        """Two operands or more, with AND, or with OR, between each two."""
        ...


class _Frame(Generic[Operand]):
    """What has begun, and is not whole before the operand that is being read."""

    __slots__ = ("is_negated", "kind", "operands", "signs")

    def __init__(
        self, kind: str, sign: Token, *operands: Operand, is_negated: bool = False
    ) -> None:
        self.kind = kind
        self.signs = [sign]
        self.operands = list(operands)
        self.is_negated = is_negated


def parse(expression: str, makes: Makes[Operand]) -> Operand:
    """What ``makes`` has made of an expression.

    Raises:
        FilterIllegalError: it is none; names the position (characters from 0) and the token.
    """
    return _Parser(expression, makes).parse()


class _Parser(Generic[Operand]):
    """Reads one expression.

    Invariant: the frames that have begun within the same parenthesis are, from the outermost on:
    OR, AND, an equality, a comparison, signs before an operand; each of them, or not.
    """

    def __init__(self, expression: str, makes: Makes[Operand]) -> None:
        self._expression = expression
        self._makes = makes
        self._take = _tokens(expression).__next__
        self._frames: list[_Frame[Operand]] = []

    def parse(self) -> Operand:
        while True:
            whole = self._follow(self._operand())
            if whole is not None:
                return whole

    def _operand(self) -> Operand:
        """The next constant or property; what stands before it waits."""
        while True:
            token = self._take()
            kind = token.kind
            if kind == "NAME":
                return self._makes.property(token)
            if kind in _CONSTANTS:
                return self._makes.constant(token)
            if kind not in _OPENING:
                raise self._fault(token)
            self._frames.append(_Frame(kind, token))

    def _follow(self, operand: Operand) -> Operand | None:
        """What stands behind an operand; the whole at the end, None where another one is needed."""
        while True:
            operand = self._unary(operand)
            if self._frames and self._frames[-1].kind == _LOW:
                token = self._take()
                if token.kind != "AND":
                    raise self._fault(token)
                frame = self._frames[-1]
                frame.kind = _HIGH
                frame.operands.append(operand)
                return None
            compared = self._comparison(operand)
            if compared is None:
                return None
            operand, token = self._equality(*compared)
            kind = token.kind
            if kind in _EQUALITIES:
                self._frames.append(_Frame(kind, token, operand))
                return None
            if kind == "AND":
                self._chain(token, operand)
                return None
            operand = self._end_chain("AND", operand)
            if kind == "OR":
                self._chain(token, operand)
                return None
            operand = self._end_chain("OR", operand)
            if kind == "END" and not self._frames:
                return operand
            if kind != ")" or not self._frames:
                raise self._fault(token)
            self._frames.pop()

    def _unary(self, operand: Operand) -> Operand:
        """What ends with an operand that is whole: signs before it, and comparisons."""
        frames, makes = self._frames, self._makes
        while frames and frames[-1].kind in _PREFIXES:
            frame = frames.pop()
            if frame.kind == "-":
                operand = makes.minus(frame.signs[0], operand)
            elif frame.kind == "NOT":
                operand = makes.negation(frame.signs[0], operand)
        if frames and frames[-1].kind in _ORDERS:
            frame = frames.pop()
            return makes.ordered(frame.operands[0], frame.signs[0], operand)
        if frames and frames[-1].kind == _HIGH:
            frame = frames.pop()
            left, low = frame.operands
            sign = frame.signs[0]
            return makes.between(left, sign, low, operand, is_negated=frame.is_negated)
        return operand

    def _comparison(self, operand: Operand) -> tuple[Operand, Token] | None:
        """A comparison that is whole, and the token behind it; None where an operand is needed."""
        while True:
            token = self._take()
            if token.kind in _ORDERS:
                self._frames.append(_Frame(token.kind, token, operand))
                return None
            is_negated = token.kind == "NOT"
            if is_negated:
                token = self._take()
            if token.kind == "BETWEEN":
                self._frames.append(_Frame(_LOW, token, operand, is_negated=is_negated))
                return None
            if token.kind == "IN":
                operand = self._makes.within(operand, token, self._texts(), is_negated=is_negated)
                continue
            if is_negated:
                raise self._fault(token)
            return operand, token

    def _texts(self) -> list[Token]:
        """The texts in parentheses behind IN."""
        texts: list[Token] = []
        token = self._take()
        if token.kind != "(":
            raise self._fault(token)
        while token.kind != ")":
            token = self._take()
            if token.kind != "TEXT":
                raise self._fault(token)
            texts.append(token)
            token = self._take()
            if token.kind not in (",", ")"):
                raise self._fault(token)
        return texts

    def _equality(self, operand: Operand, token: Token) -> tuple[Operand, Token]:
        """An equality that is whole, and the token behind it."""
        if self._frames and self._frames[-1].kind in _EQUALITIES:
            frame = self._frames.pop()
            operand = self._makes.equal(frame.operands[0], frame.signs[0], operand)
        while token.kind == "IS":
            word = self._take()
            is_negated = word.kind == "NOT"
            if is_negated:
                word = self._take()
            if word.kind != "NULL":
                raise self._fault(word)
            operand = self._makes.is_null(operand, token, is_negated=is_negated)
            token = self._take()
        return operand, token

    def _chain(self, sign: Token, operand: Operand) -> None:
        """One more operand of AND, or of OR; another one follows."""
        frames = self._frames
        if frames and frames[-1].kind == sign.kind:
            frames[-1].operands.append(operand)
            frames[-1].signs.append(sign)
        else:
            frames.append(_Frame(sign.kind, sign, operand))

    def _end_chain(self, kind: str, operand: Operand) -> Operand:
        if not self._frames or self._frames[-1].kind != kind:
            return operand
        frame = self._frames.pop()
        return self._makes.chain([*frame.operands, operand], frame.signs)

    def _fault(self, token: Token) -> FilterIllegalError:
        return _fault(self._expression, token.position, token.text or "end of the expression")


def _tokens(expression: str) -> Iterator[Token]:
    """The tokens of an expression, and ``END``.

    Raises:
        FilterIllegalError: where a character begins none.
    """
    match, position, size = _TOKEN.match, 0, len(expression)
    while position < size:
        found = match(expression, position)
        if found is None:
            raise _fault(expression, position, expression[position])
        kind, text = found.lastgroup or "", found[0]
        if kind == "NAME":
            word = text.upper()
            yield Token(word if word in _WORDS else kind, text, position)
        elif kind != "BLANK":
            yield Token(text if kind == "SIGN" else kind, text, position)
        position = found.end()
    yield Token("END", "", size)


def _fault(expression: str, position: int, token: str) -> FilterIllegalError:
    return FilterIllegalError(
        "SQL expression cannot be read", position=position, token=token, expression=expression
    )
