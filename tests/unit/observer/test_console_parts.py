"""Parts of the console: bodies, exports, visits, rings, and the documents' own words."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from ledgermq.daemon.health.verdict import _SEE
from ledgermq.observer.callers import HttpCaller
from ledgermq.observer.console.console import _local
from ledgermq.observer.console.documents import PAGES, document, section, titles
from ledgermq.observer.console.history import SAMPLES, WATCHED_MAX, LagHistory, Ring
from ledgermq.observer.console.message_pages import LINES_SIZE_MAX, SHOWN_MAX, shown_body
from ledgermq.observer.console.rendering import FOLDER, Rendering, bytes_text, time_text
from ledgermq.observer.console.tables import ShownTable, TableColumn, as_csv, exported
from ledgermq.observer.console.visits import (
    ATTEMPTS,
    ATTEMPTS_OF_ALL,
    IDLE_S,
    LIFETIME_S,
    PER_S,
    VISITS_MAX,
    VISITS_PER_CALLER_MAX,
    Attempts,
    Visits,
    proof_of,
)
from ledgermq.wire.session import ADMIN

DEEP = b"[" * 100_000 + b"]" * 100_000


class FakeClock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("body", "form", "begins"),
    [
        (b'{"a": [1, 2]}', "json", '{\n  "a": ['),
        (b'  ["x"]', "json", '[\n  "x"'),
        (b'"alone"', "text", '"alone"'),
        (b"{broken", "text", "{broken"),
        ("grüße\tdir\n".encode(), "text", "grüße"),
        (b"<script>alert(1)</script>", "text", "<script>"),
        (b"\x00\x01text", "hex", "00000000  00 01 74"),
        (b"\xff\xfe", "hex", "00000000  ff fe"),
        ("right to left \u202e".encode(), "hex", "00000000  72 69"),
        (DEEP, "text", "[[["),
        (b"", "text", ""),
    ],
)
def test_a_body_is_shown_in_the_form_that_says_most(body: bytes, form: str, begins: str) -> None:
    shown = shown_body(body)

    assert (shown.form, shown.text[: len(begins)]) == (form, begins)
    assert shown_body(body, "hex").form == "hex"
    assert shown_body(body, "no such form").form == form


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ('{"a":{},"b":[],"c":[{}, [1,{"d":null}]]}',
         '{\n  "a": {},\n  "b": [],\n  "c": [\n    {},\n    [\n      1,\n      {\n'
         '        "d": null\n      }\n    ]\n  ]\n}'),
        ('{"half a pair": "\\ud800"}', '{\n  "half a pair": "\\ud800"\n}'),
        ('{"a": 1, "a": 2}', '{\n  "a": 1,\n  "a": 2\n}'),
        ("[0.10, 1e999, 123456789012345678901.5]",
         "[\n  0.10,\n  1e999,\n  123456789012345678901.5\n]"),
        ('["a \\" {[,:]} \\\\", "grüße\\n"]', '[\n  "a \\" {[,:]} \\\\",\n  "grüße\\n"\n]'),
    ],
)  # fmt: skip
def test_json_is_shown_in_lines_and_as_it_was_written(body: str, lines: str) -> None:
    shown = shown_body(body.encode())

    assert (shown.form, shown.text) == ("json", lines)
    shown.text.encode()


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b"[" * 99 + b"]" * 99] * 300) + b"]",
        b'{"a":' * 99 + b"[" + b"1," * 30_000 + b"1]" + b"}" * 99,
    ],
)
def test_json_whose_lines_are_mostly_blanks_ends_where_it_is_long_enough(body: bytes) -> None:
    shown = shown_body(body)

    assert shown.form == "json" and "as text all of it is shown" in shown.text
    assert len(shown.text) < LINES_SIZE_MAX + 1_000
    assert shown_body(body, "text").text == body.decode()


def test_a_long_body_is_cut_and_says_so_also_within_a_character() -> None:
    body = b"x" * (SHOWN_MAX - 1) + "é".encode() + b"y" * 10
    shown = shown_body(body)

    assert (shown.form, shown.is_cut, shown.size) == ("text", True, len(body))
    assert shown.text == "x" * (SHOWN_MAX - 1)


@pytest.mark.parametrize("between", [";", "|", "\t", "\n", ";;", "; ", ';"'])
def test_no_part_of_a_text_is_a_formula_where_something_else_separates_cells(between: str) -> None:
    table = ShownTable("t", "T", (TableColumn("a", "A"),), [{"a": f"x{between}=1+1"}])
    (row,) = list(csv.reader(io.StringIO(as_csv(table))))[1:]

    assert "=1+1" in row[0]
    for cell in re.split(r"[;|\t\n]", row[0]):
        assert not cell.lstrip(' "').startswith("=")


@pytest.mark.parametrize("first", list("=+-@\t\r\n＝"))
def test_no_text_in_a_csv_is_a_formula(first: str) -> None:
    text = f'{first}cmd|"/c calc"!A1'
    columns = (TableColumn("name", "Name"), TableColumn("count", "Count", "number"))
    table = ShownTable("topics", "Topics", columns, [{"name": text, "count": -5}])
    rows = list(csv.reader(io.StringIO(as_csv(table), newline="")))

    assert rows == [["name", "count"], [f"'{text}", "-5"]]
    assert json.loads(exported(table, "json").body) == [{"name": text, "count": -5}]


def test_a_page_has_every_value_escaped() -> None:
    text = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'"
    values = {"title": text, "names": dict.fromkeys(("cluster", "broker", "node"), text)}
    page = Rendering("1").page("refused.html", {**values, "theme": "", "text": text})
    content = bytes(page.body).decode()

    assert "<script>alert" not in content
    assert "<img src=x" not in content
    assert "&lt;script&gt;alert(1)" in content


def test_templates_have_no_script_no_style_and_nothing_unescaped() -> None:
    for path in (FOLDER / "templates").glob("*.html"):
        text = path.read_text()

        assert "|safe" not in text.replace(" ", ""), path.name
        assert " style=" not in text, path.name
        assert " on" + "click" not in text, path.name
        assert "<script>" not in text, path.name
        assert "https://" not in text, path.name


def test_a_visit_ends_by_itself() -> None:
    clock = FakeClock()
    visits = Visits(clock)
    caller = HttpCaller(ADMIN, "operator")
    idle, _ = visits.begin(caller, b"", is_signed_in=True)
    clock.now_s += IDLE_S + 1

    assert visits.find(idle) is None
    used, visit = visits.begin(caller, b"", is_signed_in=True)
    began_s = clock.now_s
    while visits.find(used) is not None:
        clock.now_s += IDLE_S / 2
    assert LIFETIME_S <= clock.now_s - began_s <= LIFETIME_S + IDLE_S
    assert not visit.allows("")
    assert not visit.allows("é")
    assert visit.allows(visit.change_key)


def test_visits_are_bounded_and_nobody_ends_those_of_others() -> None:
    visits = Visits(FakeClock())
    other, _ = visits.begin(HttpCaller(ADMIN, "other"), b"", is_signed_in=True)
    for _ in range(3 * VISITS_PER_CALLER_MAX):
        visits.begin(HttpCaller(ADMIN, "eager"), b"", is_signed_in=True)

    assert visits.find(other) is not None
    assert len(visits) == VISITS_PER_CALLER_MAX + 1
    for number in range(2 * VISITS_MAX):
        visits.begin(HttpCaller(ADMIN, f"caller {number}"), b"", is_signed_in=True)
    assert len(visits) == VISITS_MAX


def test_guessing_waits_from_its_beginning_by_address_by_name_and_in_all() -> None:
    clock = FakeClock()
    attempts = Attempts(clock)
    # Before anybody has said whether one of them was right.
    assert {attempts.begin("here", "till")[0] for _ in range(ATTEMPTS)} == {0}

    assert 0 < attempts.begin("elsewhere", "till")[0] <= PER_S
    assert 0 < attempts.begin("here", "")[0] <= PER_S
    assert attempts.begin("elsewhere", "other")[0] == 0
    clock.now_s += PER_S
    assert attempts.begin("here", "till")[0] == 0
    waits = [attempts.begin(f"place {n}", f"user {n}")[0] for n in range(2 * ATTEMPTS_OF_ALL)]
    assert waits.count(0) == ATTEMPTS_OF_ALL - 1


def test_guesses_of_others_keep_nobody_out_of_where_he_has_signed_in() -> None:
    attempts = Attempts(FakeClock())
    wait_s, attempt = attempts.begin("at home", "till")
    assert not wait_s
    attempts.succeeded("at home", "till", attempt)
    for number in range(2 * ATTEMPTS_OF_ALL):
        attempts.begin(f"place {number % 20}", "till" if number % 2 else f"user {number}")

    assert attempts.begin("somewhere", "till")[0] > 0
    for _ in range(2 * ATTEMPTS):
        wait_s, attempt = attempts.begin("at home", "till")
        assert not wait_s
        attempts.succeeded("at home", "till", attempt)
    # Nor may he guess there.
    assert [attempts.begin("at home", "till")[0] > 0 for _ in range(ATTEMPTS + 1)] == [
        *[False] * ATTEMPTS, True,
    ]  # fmt: skip


def test_a_proof_is_not_what_was_shown() -> None:
    assert b"secret" not in proof_of("secret")
    assert proof_of("secret") == proof_of("secret") != proof_of("Secret")


def test_a_ring_keeps_the_last_hour() -> None:
    ring = Ring(2)
    for number in range(SAMPLES + 5):
        ring.put(number, (2 * number, 3 * number))
    times, twice, thrice = ring.columns()

    assert times == list(range(5, SAMPLES + 5))
    assert twice == [2 * number for number in times]
    assert thrice == [3 * number for number in times]


def test_only_groups_that_are_looked_at_are_followed_and_no_more_than_a_few() -> None:
    lags = LagHistory()

    assert lags.due() == ()
    for number in range(WATCHED_MAX + 9):
        lags.watch(f"group-{number}")
    due = lags.due()
    assert len(due) == WATCHED_MAX
    assert lags.due() == (), "it is not time for the next sample"
    lags.put(due[-1], 7)
    lags.put("never-looked-at", 7)
    assert lags.curve(due[-1])["lag"] == [7]
    assert lags.curve("never-looked-at") == {"time": [], "lag": []}


def test_every_reason_of_the_verdict_has_words_that_say_what_to_do() -> None:
    for trouble, see in _SEE.items():
        assert section(see), f"{trouble}: {see}"


def test_every_document_is_a_page_without_styles() -> None:
    names = [name for name, _ in titles()]

    assert len(names) == len(list(PAGES.glob("*.md"))) - 1
    for name in names:
        found = document(name)
        assert found is not None
        assert found.title
        assert "style=" not in found.html, name
        assert "<img" not in found.html, name


@pytest.mark.parametrize("name", ["../README", "README/../settings", "/etc/passwd", "", "no-page"])
def test_nothing_but_documents_is_a_document(name: str) -> None:
    assert document(name) is None


def test_documents_are_those_of_the_checkout() -> None:
    assert PAGES.resolve() == Path(__file__).parents[3] / "docs" / "operating"


@pytest.mark.parametrize(
    ("to", "goes"),
    [
        ("/topics?name=a%20b", "/topics?name=a%20b"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("", "/"),
    ],
)
def test_nobody_is_led_elsewhere_by_a_sign_in(to: str, goes: str) -> None:
    assert _local(to) == goes


def test_what_no_clock_has_is_written_all_the_same() -> None:
    assert time_text(2**62) == f"{2**62} ms"
    assert time_text(-1) == time_text(None) == "–"
    assert time_text(0) == "1970-01-01 00:00:00.000"
    assert [bytes_text(value) for value in (0, 1_023, 1_536, None)] == [
        "0 B", "1,023 B", "1.5 KiB", "–",
    ]  # fmt: skip
