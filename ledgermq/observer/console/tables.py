"""Tables of the console: rows under columns, as HTML shows them and as they are exported."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.responses import Response

NUMBERS = frozenset(("number", "rate", "bytes", "ms"))
COUNTED = NUMBERS | {"time"}
"""Ways of showing what is compared as a number."""

Row = Mapping[str, object]
"""Values by the key of their column, as JSON has them."""

_BEGINS = r"[ \"]*[=+\-@\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(rf"^(?={_BEGINS}|[\t\r\n])|(?<=[;|\t\r\n])(?={_BEGINS})")
"""Where a formula could begin to programs that open CSV: at a text's beginning, and behind whatever
separates cells or lines for some of them, for these do not see our quotes.
"""


class TableColumn(NamedTuple):
    """One of a table's.

    Attributes:
        show: how a value is written: ``text``, ``words`` (on several lines), ``code``, ``wrap``
            (code on several lines), ``preview`` (its beginning), ``number``, ``rate``, ``bytes``,
            ``time``, ``ms``, ``list``, ``state``, ``spark`` (a list of numbers as a line), or
            ``export``: in files alone.
        link: where a row's value leads to; empty for nowhere.
        hint: what it means, to who points at the title.
    """

    key: str
    title: str
    show: str = "text"
    link: Callable[[Row], str] | None = None
    hint: str = ""

    @property
    def is_numeric(self) -> bool:
        """Whether its values stand at the right."""
        return self.show in NUMBERS or self.show == "spark"


class RowAct(NamedTuple):
    """A button of each row.

    Attributes:
        act: which of the page's acts it is.
        fields: what of the row it sends, under the names of the act's form.
    """

    act: str
    button: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShownTable:
    """Rows of one kind.

    Attributes:
        name: in addresses and file names: letters and hyphens.
        empty: what is said where there is no row.
        next_: address of the rows behind these; empty where there are none.
        note: a sentence below it.
        act: what may be done with each row by one press; None for nothing.
        sorts: where the rows are sorted otherwise, by the key of a column; empty: a browser sorts
            what it shows.
        sorted_by: the key of the column by which they are, and whether from the top down.
    """

    name: str
    caption: str
    columns: Sequence[TableColumn]
    rows: Sequence[Row]
    empty: str = "There are none."
    next_: str = ""
    note: str = ""
    act: RowAct | None = None
    sorts: Mapping[str, str] = field(default_factory=dict)
    sorted_by: tuple[str, bool] | None = None


def exported(table: ShownTable, form: str) -> Response:
    """``table`` as a file to keep, ``csv`` or else JSON."""
    if form == "csv":
        content, media = as_csv(table), "text/csv; charset=utf-8"
    else:
        form = "json"
        rows = [{column.key: row.get(column.key) for column in table.columns} for row in table.rows]
        content, media = json.dumps(rows, ensure_ascii=False, indent=1), "application/json"
    name = f'attachment; filename="{table.name}.{form}"'
    return Response(content, media_type=media, headers={"content-disposition": name})


def as_csv(table: ShownTable) -> str:
    """RFC 4180, with a line of titles; no text in it is a formula to who opens it."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(column.key for column in table.columns)
    for row in table.rows:
        writer.writerow(_cell(row.get(column.key)) for column in table.columns)
    return file.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _FORMULA.sub("'", text)
