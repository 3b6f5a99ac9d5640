"""Text codec of RocketMQ's JSON files under ``config/``, which Java's fastjson reads and writes.

    file                    content
    topics.json             dataVersion, topicConfigTable: {topic: {…}}
    subscriptionGroup.json  dataVersion, subscriptionGroupTable: {group: {…}}
    consumerOffset.json     offsetTable: {"topic@group": {queue id: queue offset}}
    lmqConsumerOffset.json  the same of a broker with enableLmq, which has no consumerOffset.json;
                            and lmqOffsetTable: {"light queue@group": queue offset}
    delayOffset.json        offsetTable: {delay level: queue offset}
    consumerFilter.json     filterDataByTopic: {topic: {…}}

fastjson writes integer keys without quotes (``{0:5,1:6}``), which is not JSON, and reads much that
is none either: people edit these files, and programs write them. What it reads is read here
(docs/decisions/0044): commas too many, comments, names without quotes or in single ones, its own
escapes and numbers, a byte order mark, control characters between all that. A document here has
text keys alone, and whatever it holds is passed through: what the tables mean is the broker's
matter.

Java writes ``F.tmp``, copies ``F`` to ``F.bak``, deletes ``F``, and renames. A crash in between
leaves no ``F``, or an empty one, and the ``F.bak`` of the change before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from json import JSONDecoder
from math import isfinite
from typing import NamedTuple, NoReturn

from ledgermq.model.errors import CorruptLogError

# Possessive, and open at the end: damaged text is gone through once, not once for each quote.
_STRING_OR_KEY = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|(?<=[{,\s])(-?[0-9]++)(?=\s*+:)', re.DOTALL)

ROWS_PER_STEP = 32
"""Some tenths of a millisecond."""

OFFSET_TABLE = "offsetTable"
"""Where a file of consumed offsets has them, a node's or a client's own."""

OFFSETS_FILE = "consumerOffset.json"
LIGHT_OFFSETS_FILE = "lmqConsumerOffset.json"
LIGHT_OFFSET_TABLE = "lmqOffsetTable"

APPLIED_KEY = "ledgermqApplied"
"""Where a node says in a table's file which commands of the log are in it; RocketMQ drops it."""

_DEPTH_MAX = 64
"""Levels of a document; RocketMQ's tables have four."""

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""A half of a character by its number; with another one behind it it may be a whole."""

DOCUMENT_SIZE_MAX = 1024 * 1024 * 1024
"""Bytes: a million topics are a quarter of it."""

_LONG_MAX = 2**63 - 1
_LONG_NUMBER = re.compile(r"[0-9]{19}")
_DIGITS_MAX = 32
"""Most digits of a whole number; a longer one has zeros in front, or is too large."""

_TOKEN = re.compile(
    r"""
    (?P<space>[\x00-\x20\x7f]++|//[^\n\x1a]*+|/\*(?s:.*?)(?:\*/|\Z))
    |(?P<double>"(?:[^"\\]|\\(?s:.))*+")
    |(?P<single>'(?:[^'\\]|\\(?s:.))*+')
    |(?P<mark>[{}\[\]:,])
    |(?P<word>[-+.\w$]++)
    |(?s:.)
    """,
    re.VERBOSE,
)
_WHOLE_TEXT = re.compile(r"([-+]?[0-9]+)(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(
    r"\+?(?P<whole>-?[0-9]+)(?P<rest>\.[0-9]*)?(?P<exponent>[eE][-+]?[0-9]+)?(?P<suffix>[LSBFD])?",
    re.ASCII,
)
_ESCAPE = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{2})|u(?P<unicode>[0-9a-fA-F]{4})|(?P<one>.))", re.DOTALL
)
_ESCAPED = dict(zip("01234567btnvfFr\"'/\\", "\0\1\2\3\4\5\6\7\b\t\n\v\f\f\r\"'/\\", strict=True))
_OPENING, _CLOSING = frozenset("[{,:"), frozenset("]}:")


def encode_document(document: Mapping[str, object]) -> bytes:
    """``document`` as a file's content: indented by tabs like Java's, with all keys in quotes.

    It has ASCII characters alone, so that Java reads it under every default charset.
    """
    return json.dumps(document, indent="\t", allow_nan=False).encode("ascii")


class Rows:
    """A table of a document, each row of which is made when it is written.

    Rows are never changed, only replaced: to have them costs no more than a reference to each, and
    another thread may make them.
    """

    def __init__(self, rows: Iterable[tuple[str, object]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[str, object]]:
        """Key and value of each; once."""
        return iter(self._rows)


def encode_in_steps(document: Mapping[str, object], pause: Callable[[], object]) -> bytes:
    """``document`` as a file's content: a line for each row of its tables, whatever is in it.

    To indent what is within a row costs ten times as much. For a thread beside one that others wait
    for: it lets that one go on again and again.

    Args:
        document: tables are ``Rows``, or mappings.
        pause: called behind each few rows.
    """
    parts: list[str] = []
    for key, value in document.items():
        if not isinstance(value, Rows | Mapping):
            parts.append(f"{_line(key)}: {_line(value)}")
            continue
        lines: list[str] = []
        for name, row in value if isinstance(value, Rows) else value.items():
            lines.append(f"\t\t{_line(str(name))}: {_line(row)}")
            if len(lines) % ROWS_PER_STEP == 0:
                pause()
        parts.append(f"{_line(key)}: {{\n" + ",\n".join(lines) + "\n\t}")
    return ("{\n\t" + ",\n\t".join(parts) + "\n}").encode("ascii")


def _line(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def decode_document(data: bytes, *, file: str = "") -> dict[str, object]:
    """The document in a file's content, as fastjson reads it; of ``null`` an empty one.

    Raises:
        CorruptLogError: it is not one object, or larger than ``DOCUMENT_SIZE_MAX``.
    """
    return _decoded(data, file)[0]


def _decoded(data: bytes, file: str) -> tuple[dict[str, object], bool]:
    """The document, and whether it is plain (``is_plain``)."""
    if len(data) > DOCUMENT_SIZE_MAX:
        raise CorruptLogError(
            "JSON document is too large",
            file=file,
            offset=0,
            field="size",
            size=len(data),
            limit=DOCUMENT_SIZE_MAX,
        )
    try:
        # Mostly it is what a broker has written, in a hundredth of the time.
        document, plain = _parsed_plain(data), True
    except (ValueError, RecursionError):
        document, plain = _parsed_as_fastjson(data, file), False
    if document is None:
        return {}, plain
    if _HALF.search(data) is not None:
        document = _with_whole_characters(document)
    if not isinstance(document, dict):
        raise CorruptLogError(
            "not a JSON object", file=file, offset=0, field="text", found=type(document).__name__
        )
    if not _is_shallow(document):
        raise CorruptLogError(
            "JSON is nested too deep", file=file, offset=0, field="text", limit=_DEPTH_MAX
        )
    return document, plain


def _with_whole_characters(value: object) -> object:
    """``value`` with a question mark for each half of a character, as Java writes such a text."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_with_whole_characters(one) for one in value]
    if isinstance(value, dict):
        return {
            _with_whole_characters(key): _with_whole_characters(one) for key, one in value.items()
        }
    return value


def is_plain(data: bytes) -> bool:
    """Whether a file's content is such as brokers write: not as people do."""
    try:
        _parsed_plain(data)
    except (ValueError, RecursionError):
        return False
    return True


def _parsed_plain(data: bytes) -> object:
    return _parsed(_STRING_OR_KEY.sub(_quoted, data.decode()))


def _parsed_as_fastjson(data: bytes, file: str) -> object:
    # A comment may be in any encoding; what else is no UTF-8 is refused.
    text = data.decode("utf-8-sig", "surrogateescape")
    tokens: list[_Token] = []
    try:
        tokens = _plain_tokens(text)
        return _parsed("".join(token.text for token in tokens))
    # The decoder says ValueError to all that is not JSON, and goes as deep as the text does.
    except (ValueError, RecursionError) as error:
        raise CorruptLogError(
            "not a JSON document",
            file=file,
            offset=_place(error, tokens),
            field="text",
            reason=getattr(error, "msg", str(error))[:200],
        ) from error


def _parsed(text: str) -> object:
    # A call for each number takes as long as all the rest.
    is_long = _LONG_NUMBER.search(text) is not None
    return json.loads(
        text,
        parse_constant=_refuse_constant,
        parse_float=_finite_float,
        parse_int=_bounded_int if is_long else None,
    )


class _Token(NamedTuple):
    """A piece of plain JSON, and where in the document it was found."""

    text: str
    at: int


def _plain_tokens(text: str) -> list[_Token]:
    """The document as the tokens of plain JSON.

    Raises:
        ValueError: fastjson would not read it.
    """
    tokens: list[_Token] = []
    # A name or number that may yet be a key; a comma that may yet be one too many.
    word: _Token | None = None
    comma: _Token | None = None
    for match in _TOKEN.finditer(text):
        kind, found, at = match.lastgroup, match.group(), match.start()
        if kind == "space":
            continue
        if kind is None:
            raise _UnreadableError(f"nothing that begins like that can be read: {found!r}", at)
        if word is not None:
            tokens.append(_Token(_key(word.text) if found == ":" else _value(word), word.at))
            word = None
        if found == ",":
            comma = _Token(found, at)
            continue
        # Where one is missing fastjson mostly goes on, too.
        begins = kind != "mark" or found in "[{"
        if (
            (comma or begins)
            and found not in _CLOSING
            and tokens
            and tokens[-1].text not in _OPENING
        ):
            tokens.append(comma or _Token(",", at))
        comma = None
        if kind == "word":
            word = _Token(found, at)
        elif kind == "mark":
            tokens.append(_Token(found, at))
        else:
            tokens.append(_Token(_string(found, at), at))
    if word is not None:
        tokens.append(_Token(_value(word), word.at))
    return tokens


class _UnreadableError(ValueError):
    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


def _place(error: Exception, tokens: Sequence[_Token]) -> int:
    """Character of the document, of an error that may be about its tokens."""
    if isinstance(error, _UnreadableError):
        return error.at
    left = getattr(error, "pos", 0)
    for token in tokens:
        if left < len(token.text):
            return token.at
        left -= len(token.text)
    return tokens[-1].at if tokens else 0


def _key(word: str) -> str:
    number = _NUMBER.fullmatch(word)
    return json.dumps(str(_whole(number)) if number else word)


def _value(word: _Token) -> str:
    number = _NUMBER.fullmatch(word.text)
    if number is not None:
        is_whole = not (number["rest"] or number["exponent"]) and number["suffix"] not in ("D", "F")
        return str(_whole(number)) if is_whole else repr(_finite_float(_digits(number)))
    if word.text in ("true", "false"):
        return word.text
    if word.text.lower() == "null" or word.text == "undefined":
        return "null"
    raise _UnreadableError(f"a value without quotes that is none: {word.text[:64]!r}", word.at)


def _digits(number: re.Match[str]) -> str:
    return number["whole"] + (number["rest"] or "") + (number["exponent"] or "")


def _whole(number: re.Match[str]) -> int:
    if number["rest"] or number["exponent"]:
        return int(_finite_float(_digits(number)))
    return _bounded_int(number["whole"])


def _string(text: str, at: int) -> str:
    """A string in either quotes as one of plain JSON."""
    content = text[1:-1]
    if "\\" in content:
        try:
            content = _ESCAPE.sub(_unescaped, content)
        except (KeyError, ValueError) as error:
            raise _UnreadableError(f"no escape of a string: {error}", at) from error
    if not content.isascii() and any("\udc80" <= one <= "\udcff" for one in content):
        raise _UnreadableError("string that is no UTF-8", at)
    return json.dumps(content)


def _unescaped(match: re.Match[str]) -> str:
    code = match["hex"] or match["unicode"]
    return chr(int(code, 16)) if code else _ESCAPED[match["one"]]


def whole_number(value: object) -> int | None:
    """What fastjson reads where a number has to be: fractions are cut off, and a text is taken for
    what it says; None where it would leave what was there before.

    Raises:
        ValueError: nothing of that, or beyond 64 bits.
    """
    if value is None:
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        number = int(value)
    elif value in ("", "null", "NULL"):
        return None
    elif isinstance(value, str) and (match := _WHOLE_TEXT.fullmatch(value.replace(",", ""))):
        return _bounded_int(match[1])
    else:
        raise ValueError(f"not a whole number: {str(value)[:64]!r}")
    return _bounded_int(str(number))


def true_or_false(value: object) -> bool | None:
    """The same where a boolean has to be.

    Raises:
        ValueError: it is none.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return int(value) == 1
    if isinstance(value, str):
        if value in ("", "null", "NULL"):
            return None
        if value.lower() in ("true", "1", "y") or value == "T":
            return True
        if value.lower() in ("false", "0", "f") or value == "N":
            return False
    raise ValueError(f"neither true nor false: {str(value)[:64]!r}")


def with_field_names(document: Mapping[str, object], names: frozenset[str]) -> Mapping[str, object]:
    """``document`` with these names spelt so, which fastjson finds in any case, with ``_`` or ``-``
    between the letters, and behind an ``is``; all other names stay.
    """
    if document.keys() <= names:
        return document
    folded = {_folded(name): name for name in names}
    found: dict[str, object] = {}
    for key, value in document.items():
        name = folded.get(_folded(key)) or folded.get(_folded(key.removeprefix("is")))
        # Its own spelling counts before others.
        found[key if name is None or (name != key and name in document) else name] = value
    return found


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _is_shallow(document: object) -> bool:
    """Whether ``document`` can be written again without running out of stack."""
    level: list[object] = [document]
    for _ in range(_DEPTH_MAX):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        if not below:
            return True
        level = below
    return False


def _quoted(match: re.Match[str]) -> str:
    key = match.group(1)
    return match.group() if key is None else f'"{key}"'


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _bounded_int(text: str) -> int:
    value = int(text) if len(text) <= _DIGITS_MAX else _LONG_MAX + 1
    if not -_LONG_MAX - 1 <= value <= _LONG_MAX:
        raise ValueError(f"{text[:64]} is too large")
    return value


def _finite_float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:64]} is too large")
    return value


class Chosen(NamedTuple):
    """The document of a file and its ``.bak``, None when there is neither.

    Attributes:
        is_copy: it is that of the ``.bak``.
        is_plain: see the function.
    """

    document: dict[str, object] | None
    is_copy: bool = False
    is_plain: bool = True


def choose_document(
    primary: bytes | None, backup: bytes | None, *, file: str = ""
) -> dict[str, object] | None:
    """The document of a file and its ``.bak``, as ``chosen`` finds it, without which of the two it
    was.
    """
    return chosen(primary, backup, file=file).document


def chosen(primary: bytes | None, backup: bytes | None, *, file: str = "") -> Chosen:
    """The document of a file and its ``.bak``.

    The backup counts when the file is missing, empty or damaged (``ConfigManager.load``). Where
    there is something and nothing can be read this is an error, as there: the next write would make
    the loss final. Who writes the file keeps one aside first that is damaged
    (``process/table_files.py``).

    Args:
        primary: content of the file, ``None`` if there is none.
        backup: content of its ``.bak``, ``None`` if there is none.
        file: named in the error.

    Raises:
        CorruptLogError: there is something, and nothing that can be read.
    """
    damage: CorruptLogError | None = None
    for content, name in ((primary, file), (backup, f"{file}.bak")):
        if content:
            try:
                document, plain = _decoded(content, name)
                return Chosen(document, name != file, plain)
            except CorruptLogError as error:
                damage = damage or error
    if damage is not None:
        raise CorruptLogError(
            "table cannot be read, and has no copy (.bak) that can: put back one that is whole, or"
            " move both away to go on without what they say",
            **damage.details,
        ) from damage
    return Chosen(None)


VALUES_PER_STEP = 64

DecodeSteps = Generator[None, None, object]

_BLANK = re.compile(r"[ \t\n\r]*")
_decode = JSONDecoder().raw_decode
SMALL = 256 * 1024
"""Characters that Python's decoder takes at once: a millisecond or two."""


def decode_in_steps(text: str, depth: int) -> DecodeSteps:
    """What ``json.loads`` gives of ``text``; objects down to ``depth`` are taken key by key, which
    takes four times as long, unless all of it is small.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deep.
    """
    if len(text) <= SMALL:
        return json.loads(text)
    value, end = yield from _value_in_steps(text, _skip(text, 0), depth)
    end = _skip(text, end)
    if end != len(text):
        raise ValueError(f"something stands behind the value: char {end}")
    return value


def _value_in_steps(text: str, at: int, depth: int) -> Generator[None, None, tuple[object, int]]:
    """The value at ``at``, and where it ends."""
    if depth == 0 or text[at : at + 1] != "{":
        return _decode(text, at)
    found: dict[str, object] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise ValueError(f"expected a key: char {at}")
        key, at = _decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"expected a colon: char {at}")
        found[key], at = yield from _value_in_steps(text, _skip(text, at + 1), depth - 1)
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "}":
            return found, at + 1
        if mark != ",":
            raise ValueError(f"expected a comma: char {at}")
        at = _skip(text, at + 1)
        if len(found) % VALUES_PER_STEP == 0:
            yield


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()
