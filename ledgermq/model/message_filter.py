"""Message filters of a consumer: by tag, or by an SQL-92 expression over properties."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self

from ledgermq.model.errors import FilterIllegalError

ALL_TAGS = "*"
TAGS_MAX = 256
"""Most tags of one subscription."""

EXPRESSION_SIZE_MAX = 8_192
"""Most bytes of one SQL expression; it travels with each pull."""


SQL_MARK = "SQL92 "
"""Mark before the expression, where a member's subscriptions are told as texts."""


class FilterKind(Enum):
    """How a filter is written; the values are RocketMQ's ``ExpressionType``."""

    TAG = "TAG"
    SQL92 = "SQL92"


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What a consumer wants of a topic.

    Attributes:
        expression: as it was written.
        tags: the tags wanted; empty means that tags do not matter.
    """

    kind: FilterKind
    expression: str
    tags: frozenset[str] = frozenset()

    @classmethod
    def by_tags(cls, expression: str) -> Self:
        """Messages with one of the tags in ``A || B``; ``*`` alone, or nothing, is all messages.

        The rules are RocketMQ's (``FilterAPI``): in a list ``*`` is a tag like any other.

        Raises:
            FilterIllegalError: there is no tag between the bars, or there are too many; or they are
                joined by ``&&``, though a message has one tag.
        """
        if not isinstance(expression, str):
            raise FilterIllegalError("tags are not a text, as A || B", expression=expression)
        if "&&" in expression:
            raise FilterIllegalError(
                "tags are joined by || alone; an expression with AND is given to by_sql",
                expression=expression,
            )
        return cls.as_rocketmq(expression)

    @classmethod
    def as_rocketmq(cls, expression: str) -> Self:
        """``by_tags`` as RocketMQ's clients are understood: ``A && B`` is one tag of that name.

        Raises:
            FilterIllegalError: there is no tag between the bars, or there are too many.
        """
        if expression.strip() in ("", ALL_TAGS):
            return cls(FilterKind.TAG, ALL_TAGS)
        tags = frozenset(tag.strip() for tag in expression.split("||")) - {""}
        if not tags:
            raise FilterIllegalError("tag expression has no tag", expression=expression)
        if len(tags) > TAGS_MAX:
            raise FilterIllegalError("too many tags", tags=len(tags), limit=TAGS_MAX)
        return cls(FilterKind.TAG, expression, tags)

    @classmethod
    def by_sql(cls, expression: str) -> Self:
        """Messages whose properties fulfil an SQL-92 expression, as ``price > 5 AND region = 'x'``.

        The broker parses it, and refuses what is none.

        Raises:
            FilterIllegalError: it is empty or too long.
        """
        if not isinstance(expression, str):
            raise FilterIllegalError("SQL expression is not a text", expression=expression)
        size = len(expression.encode(errors="replace"))
        if not expression.strip() or size > EXPRESSION_SIZE_MAX:
            raise FilterIllegalError(
                "SQL expression is empty or too long", size=size, limit=EXPRESSION_SIZE_MAX
            )
        return cls(FilterKind.SQL92, expression)

    @property
    def sql(self) -> str:
        """The SQL expression; empty where there is none."""
        return self.expression if self.kind is FilterKind.SQL92 else ""


EVERYTHING = MessageFilter(FilterKind.TAG, ALL_TAGS)
