"""Parts of the console: bodies, exports, visits, rings, and the documents' own words."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from ledgermq.daemon.health.verdict import _SEE
from ledgermq.ipc.cursor_page import CursorPage, Grant, PublishedRole, Role
from ledgermq.model.errors import ProtocolError, TimedOutError
from ledgermq.model.ids import NodeId, Term
from ledgermq.observer.callers import HttpCaller
from ledgermq.observer.console.console import _local
from ledgermq.observer.console.documents import (
    CONTENTS,
    FOUND_MAX,
    PAGES,
    contents,
    document,
    found,
    section,
)
from ledgermq.observer.console.group_finding import (
    GroupFinding,
    GroupSigns,
    finding_of,
    headline,
)
from ledgermq.observer.console.happenings import HAPPENINGS_MAX, Happenings
from ledgermq.observer.console.history import SAMPLES, Courses, spark_of
from ledgermq.observer.console.message_pages import LINES_SIZE_MAX, SHOWN_MAX, shown_body
from ledgermq.observer.console.node_pages import cluster_table, health_of
from ledgermq.observer.console.rendering import (
    FOLDER,
    Rendering,
    bytes_text,
    spark_points,
    time_text,
)
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
from ledgermq.observer.inquiries.cluster_survey import GroupLook, MemberSeen, member_seen, seen
from ledgermq.verbs.clusters import ClusterGroup, ClusterView
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


def test_courses_keep_the_last_hour_of_what_is_there() -> None:
    courses = Courses(2, 3)
    for number in range(SAMPLES + 5):
        late = {"late": (0, number)} if number > SAMPLES else {}
        courses.put(10.0 * number, {"always": (2 * number, 3 * number), **late})
    times, twice, thrice = courses.columns("always")

    assert [round(at - times[0]) for at in times] == [10 * number for number in range(SAMPLES)]
    assert twice == [2 * number for number in range(5, SAMPLES + 5)]
    assert thrice[-1] == 3 * (SAMPLES + 4)
    assert len(courses.columns("late")[0]) == 4
    assert courses.rate("always") == pytest.approx(0.2)
    assert courses.rates("late", 1) == pytest.approx([0.1] * 3)
    assert courses.columns("never") == [[], [], []]
    assert courses.rate("never") is None


def test_courses_are_of_no_more_than_a_few_things_and_forget_what_has_gone() -> None:
    courses = Courses(1, 3)
    courses.put(0.0, {str(number): (number,) for number in range(9)})
    assert [name for name in map(str, range(9)) if courses.columns(name)[0]] == ["0", "1", "2"]
    courses.put(10.0, {str(number): (number,) for number in range(2, 9)})

    assert [name for name in map(str, range(9)) if courses.columns(name)[0]] == ["2", "3", "4"]
    # Offsets that were set back are no rate below zero.
    courses.put(20.0, {"2": (0,)})
    assert courses.rate("2") == 0


def test_an_hour_is_a_line_of_few_points_that_ends_at_the_right() -> None:
    assert spark_of(range(SAMPLES)) == [6 * number + 5 for number in range(60)]
    assert spark_points([0.0, 4.0], 3) == "50.0,19.0 100.0,1.0"
    assert spark_points([0.0], 3) == "100.0,19.0"


MINUTE_MS = 60_000
SINCE = "silent since 00:01:00 UTC"
NO_LEADER = "It takes no message; what is stored here can be read."
ALONE = f"There is no majority of 3. {NO_LEADER}"


@pytest.mark.parametrize(
    ("leader", "lagging", "silent", "found"),
    [
        ("n0", set(), {}, GroupFinding("ok", "3 of 3 in step, one may fail")),
        ("n0", None, {}, GroupFinding("ok", "3 of 3 heard of, one may fail")),
        (
            "n0",
            {"n1"},
            {},
            GroupFinding("warn", "n1 catching up", "2 of 3 in step, none may fail."),
        ),
        (
            "n0",
            set(),
            {"n2": MINUTE_MS},
            GroupFinding("warn", f"n2 {SINCE}", "2 of 3 in step, none may fail."),
        ),
        (
            "",
            None,
            {"n1": MINUTE_MS + 999, "n2": MINUTE_MS},
            GroupFinding("bad", f"n1, n2 {SINCE}", ALONE),
        ),
        (
            "",
            None,
            {"n1": 1, "n2": MINUTE_MS},
            GroupFinding("bad", f"n1 silent since before 00:00:00 UTC; n2 {SINCE}", ALONE),
        ),
        ("", None, {}, GroupFinding("bad", "Nobody leads just now", NO_LEADER)),
        ("n0", set(), {"stranger": 1}, GroupFinding("ok", "3 of 3 in step, one may fail")),
    ],
)
def test_who_is_silent_comes_first_and_then_how_many_may_fail(
    leader: str, lagging: set[str] | None, silent: dict[str, int], found: GroupFinding
) -> None:
    signs = GroupSigns({"n0", "n1", "n2"}, leader, lagging, silent, 1_000)

    assert finding_of(signs) == found


def test_a_node_that_does_not_serve_says_why_before_it_says_that_the_group_is_well() -> None:
    well, silent = GroupFinding("ok", "3 of 3 in step"), GroupFinding("bad", "n1 silent")

    assert headline(well, []) == well
    assert headline(well, ["Disk full", "more"]) == GroupFinding(
        "bad", "Disk full", "3 of 3 in step."
    )
    assert headline(silent, ["No majority"]) == silent


def test_a_cluster_is_shown_with_its_home_first_and_how_old_that_is() -> None:
    groups = [ClusterGroup(name, (f"tcp://{name}:1",), "") for name in ("a", "b", "c")]
    view = ClusterView(
        "n0",
        "c",
        "sales",
        "",
        (),
        "b",
        (),
        is_home=False,
        signs=False,
        epoch=1,
        by_root=False,
        rank=1,
        rows_rank=1,
        number=7,
        rights_too_old=False,
        current_ms=1_500,
        is_parted=False,
        failure="",
        groups=groups,
    )
    ordered = [groups[1], groups[0], groups[2]]
    table = cluster_table(view, ordered, {"b": GroupLook("n0", 1, lag=3)})

    assert [(row["group"], row["part"]) for row in table.rows] == [
        ("b", "home"),
        ("a", "member"),
        ("c", "this group"),
    ]
    assert (table.caption, table.note) == ("Groups of sales", "As the home had them 1.5 s ago.")
    assert [row["health"] for row in table.rows] == ["all answer", "not seen yet", "not seen yet"]
    unknown = cluster_table(view._replace(failure="refused"), ordered, {})
    assert unknown.note == "The home does not answer: refused."


def test_how_a_group_is_goes_by_what_its_members_tell() -> None:
    peers = ("n0", "n1", "n2")
    leader = MemberSeen("n1", peers, leads=True, term=5, written=900)
    deposed = MemberSeen("n0", peers, leads=True, term=4, written=700)
    follower = MemberSeen("n2", peers, leads=False, term=5, written=880)
    away = TimedOutError("no answer")

    all_ = seen({"a": deposed, "b": leader, "c": follower})
    assert (all_.leader, all_.members, all_.silent, all_.behind) == ("n1", 3, (), 200)
    assert health_of(all_._replace(lag=0)) == ("all answer", "3 of 3 answer")
    assert health_of(all_._replace(why="refused")) == (
        "all answer", "3 of 3 answer; lags: refused"
    )  # fmt: skip
    two = seen({"a": away, "b": leader, "c": follower})
    assert two.silent == ("n0",)
    assert health_of(two) == ("some silent", "2 of 3 answer, none more may fail")
    assert health_of(seen({"a": away, "b": away, "c": follower})) == (
        "nobody leads", "1 of 3 answer"
    )  # fmt: skip
    nobody = seen({"a": away, "b": away})
    assert nobody.silent == ("a", "b")
    assert health_of(nobody) == ("no answer", "no answer")


def test_what_is_no_report_of_a_node_is_refused() -> None:
    report = {
        "node": {"self_id": "n0", "peers": ["n0-host:1", "w-host:1"]},
        "bodiless": ["w"],
        "raft": {"role": "follower", "term": 3},
        "cursors": {"written": {"position": 7}},
    }
    assert member_seen(report) == MemberSeen("n0", ("n0",), leads=False, term=3, written=7)
    for broken in ({**report, "raft": []}, {**report, "node": {"self_id": 1, "peers": []}}, {}):
        with pytest.raises(ProtocolError):
            member_seen(broken)


def test_what_changes_on_a_node_is_kept_and_no_more_than_a_thousand(tmp_path: Path) -> None:
    with CursorPage.create(tmp_path / "cursors") as page:
        page.publish_grant(Grant(Term(3), True, PublishedRole.LEADER, NodeId("n0")))
        page.publish_absent([NodeId("n2")])
        page.enter_process(Role.WRITER)
        seen = Happenings(page, "n0")
        seen.look()
        assert (seen.newest(), seen.silent) == ([], {"n2": seen.since_ms})
        page.publish_grant(Grant(Term(4), False, PublishedRole.FOLLOWER, NodeId("n1")))
        page.publish_absent([NodeId("n1")])
        page.enter_process(Role.WRITER)
        seen.look()

        assert [(one.who, one.text) for one in seen.newest()] == [
            ("writer", "was started again"),
            ("n2", "is heard of again"),
            ("n1", "gives no sign of life"),
            ("n0", "follows n1 in term 4"),
        ]
        assert list(seen.silent) == ["n1"]
        for term in range(HAPPENINGS_MAX + 9):
            page.publish_grant(Grant(Term(5 + term), False, PublishedRole.CANDIDATE))
            seen.look()
        assert len(seen.newest()) == HAPPENINGS_MAX


def test_every_reason_of_the_verdict_has_words_that_say_what_to_do() -> None:
    for trouble, see in _SEE.items():
        assert section(see), f"{trouble}: {see}"


def test_every_document_is_a_page_without_styles_and_in_the_contents() -> None:
    listed = contents()
    for path in PAGES.glob("*.md"):
        shown = document(path.stem)
        assert shown is not None
        assert shown.title
        assert "style=" not in shown.html, path.stem
        assert "<img" not in shown.html, path.stem
        assert path.stem == CONTENTS or f'href="/handbook/{path.stem}"' in listed


def test_sections_are_found_by_all_of_their_words() -> None:
    first, *others = found("DISK full")

    assert first.link == "/handbook/disk-space"
    assert "/handbook/what-to-do#the-disk-is-full" in [one.link for one in others[:3]]
    assert 0 < len(others) < FOUND_MAX
    assert all("](" not in one.text and "`" not in one.text for one in others)
    assert found("no-section-has-such-a-word") == found(" ") == []


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
