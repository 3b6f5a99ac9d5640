"""Who reads whom: our rules against Avro's own library and a validator of JSON Schema."""

from __future__ import annotations

import base64
import contextlib
import json
import time
import tracemalloc
from typing import Any

import jsonschema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse as parsed_by_avro
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.model.errors import ConfigError
from ledgermq.model.names.schemas import TEXT_SIZE_MAX, Compatibility, SchemaType
from ledgermq.rules.schemas.avro_schema import avro_type, check_avro_reads
from ledgermq.rules.schemas.comparison import StepBudget, UnreadableError, shown
from ledgermq.rules.schemas.json_schema import check_json_reads
from ledgermq.rules.schemas.protobuf_schema import check_proto_reads, proto_file
from ledgermq.rules.schemas.schema_plans import conflicts
from ledgermq.rules.schemas.schema_table import SchemaVersion

_PRIMITIVES = st.sampled_from(
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
)


def _avro(names: str) -> st.SearchStrategy[Any]:
    """Types; definitions have names of their own in each place, so that none is there twice."""
    enum = st.builds(
        lambda symbols, default: {
            "type": "enum", "name": f"{names}e", "symbols": sorted(symbols),
            **({"default": min(symbols)} if default else {}),
        },
        st.sets(st.sampled_from("ABC"), min_size=1),
        st.booleans(),
    )  # fmt: skip
    fixed = st.builds(
        lambda size: {"type": "fixed", "name": f"{names}f", "size": size}, st.integers(1, 2)
    )
    if len(names) > 2:
        return st.one_of(_PRIMITIVES, enum, fixed)
    array = st.builds(lambda items: {"type": "array", "items": items}, _avro(names + "i"))
    mapped = st.builds(lambda values: {"type": "map", "values": values}, _avro(names + "m"))
    union = st.lists(_PRIMITIVES, min_size=1, max_size=3, unique=True)
    field = st.tuples(_avro(names + "r"), st.booleans())
    record = st.builds(
        lambda fields: {
            "type": "record",
            "name": f"{names}r",
            "fields": [_field(name, names, *fields[name]) for name in sorted(fields)],
        },
        st.dictionaries(st.sampled_from("abc"), field, max_size=2),
    )
    return st.one_of(_PRIMITIVES, enum, fixed, array, mapped, union, record)


def _field(name: str, names: str, kind: Any, has_default: bool) -> dict[str, Any]:
    kind = json.loads(json.dumps(kind).replace(f'"{names}r', f'"{names}{name}r'))
    # Avro's parser looks at defaults: a union that begins with null has one for each rest.
    return {
        "name": name,
        "type": ["null", kind] if has_default and kind not in _WITH_NULL else kind,
        **({"default": None} if has_default and kind not in _WITH_NULL else {}),
    }


_WITH_NULL: list[Any] = ["null"]


def _reads_avro(reader: str, writer: str) -> bool:
    steps = StepBudget()
    try:
        check_avro_reads(avro_type(reader, steps), avro_type(writer, steps), steps)
    except UnreadableError:
        return False
    return True


@settings(deadline=None, max_examples=400, derandomize=True)
@given(_avro("n"), _avro("n"))
def test_avro_is_read_where_avros_own_library_says_so(reader: Any, writer: Any) -> None:
    texts = json.dumps(reader), json.dumps(writer)
    if any(isinstance(one, list) and not one for one in (reader, writer)):
        return
    try:
        theirs = [parsed_by_avro(text) for text in texts]
    except Exception:  # a union in a union: neither takes it
        with pytest.raises(ConfigError):
            [avro_type(text, StepBudget()) for text in texts]
        return

    found = ReaderWriterCompatibilityChecker().get_compatibility(*theirs)
    expected = found.compatibility is SchemaCompatibilityType.compatible
    assert _reads_avro(*texts) == expected, texts


def test_an_avro_type_within_itself_is_compared_to_its_end() -> None:
    def tree(kind: str) -> str:
        fields = [{"name": "v", "type": kind}, {"name": "next", "type": ["null", "t"]}]
        return json.dumps({"type": "record", "name": "t", "fields": fields})

    assert _reads_avro(tree("long"), tree("int"))
    assert not _reads_avro(tree("int"), tree("long"))


def test_a_field_of_another_name_is_found_by_its_alias() -> None:
    def record(name: str, **more: Any) -> str:
        fields = [{"name": name, "type": "int", **more}]
        return json.dumps({"type": "record", "name": "r", "fields": fields})

    assert not _reads_avro(record("new"), record("old"))
    assert _reads_avro(record("new", aliases=["old"]), record("old"))


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "nothing"}]}',
        '{"type": "enum", "name": "e", "symbols": ["A"], "default": ["A"]}',
        '{"type": "enum", "name": "e", "symbols": "A"}',
        '{"type": "fixed", "name": "f", "size": true}',
        '{"type": "array"}',
        '{"type": {"type": ["int", ["int"]]}}',
        '["int", "int"]',
        "[]",
    ],
)
def test_what_is_no_avro_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an Avro schema"):
        avro_type(text, StepBudget())


def _with_default(kind: Any, default: Any) -> str:
    """A field of that type, two fields deep."""
    fields = [{"name": "b", "type": kind, "default": default}]
    inner = {"type": "record", "name": "i", "fields": fields}
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": inner}]})


_POINT = {
    "type": "record",
    "name": "p",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}],
}
_POINTS = {"type": "array", "items": [_POINT]}
_INTS = {"type": "array", "items": "int"}
_TEXTS = {"type": "map", "values": "string"}
_PAIR = {"type": "fixed", "name": "f", "size": 2}
_CARD = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
_LIST = {
    "type": "record",
    "name": "l",
    "fields": [{"name": "rest", "type": ["null", "l"], "default": None}],
}


@pytest.mark.parametrize(
    ("kind", "fits", "others"),
    [
        ("null", [None], [0, ""]),
        ("boolean", [True], [0, "true", None]),
        ("int", [0, -(1 << 31), (1 << 31) - 1], [1 << 31, -(1 << 31) - 1, True, 1.0, "1", None]),
        ("long", [(1 << 63) - 1], [1 << 63, 0.5]),
        ("float", [1, 1.5], [True, "1", None]),
        ("double", [-1, 1e300], ["NaN", False]),
        ("string", ["", "€"], [0, None, ["a"]]),
        ("bytes", ["", "\u00ff"], ["\u0100", 1, [1]]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, ["\x01"], [1.5]),
        (_PAIR, ["ab", "\u00ff\u0000"], ["a", "abc", "a\u0100", 0]),
        (_CARD, ["A"], ["C", 0, None]),
        (_INTS, [[], [1, 2]], [{}, 1, None]),
        (_TEXTS, [{}, {"k": "v"}], [[], "k"]),
        (_POINT, [{"x": 1}, {"x": 1, "y": 2, "of nobody": 3}], [[], 1, None]),
        (_LIST, [{}, {"rest": None}], [None]),
        (["null", "int"], [None], [1, "null"]),
        (["int", "null"], [1], [None]),
        ([_POINT, "null"], [{"x": 1}], [None]),
    ],
)
def test_a_default_is_a_value_of_its_fields_type(
    kind: Any, fits: list[Any], others: list[Any]
) -> None:
    for value in fits:
        avro_type(_with_default(kind, value), StepBudget(), has_defaults_checked=True)
    for value in others:
        with pytest.raises(ConfigError, match="a default is none of its field's type") as found:
            avro_type(_with_default(kind, value), StepBudget(), has_defaults_checked=True)
        assert found.value.details["field"] == "/a/b"
        assert found.value.details["value"] == shown(value)


@pytest.mark.parametrize(
    ("kind", "default", "place", "reason"),
    [
        (_INTS, [1, "x"], "/a/b/1", "value='x', type='int'"),
        (_TEXTS, {"k": 7}, "/a/b/k", "value='7', type='string'"),
        (_POINT, {"x": 1, "y": "z"}, "/a/b/y", "value='z', type='int'"),
        (_POINT, {"y": 1}, "/a/b/x", "lacks a field that has no default of its own"),
        (
            {"type": "array", "items": [_POINT]},
            [{"x": None}],
            "/a/b/0/x",
            "value='None', type='int'",
        ),
        # The union's first branch, as everywhere in a default.
        (_LIST, {"rest": {"rest": None}}, "/a/b/rest", "value='an object of 1', type='null'"),
    ],
)
def test_what_does_not_fit_within_a_default_is_named(
    kind: Any, default: Any, place: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as found:
        avro_type(_with_default(kind, default), StepBudget(), has_defaults_checked=True)

    assert found.value.details["field"] == place
    assert reason in str(found.value)


def test_a_default_is_asked_of_a_new_version_and_not_of_those_that_were_taken() -> None:
    taken, new = _with_default("int", "one"), _with_default("int", 1)
    before = [SchemaVersion(1, 1, SchemaType.AVRO, taken)]

    assert conflicts(Compatibility.FULL, SchemaType.AVRO, new, before) == []
    for rule in (Compatibility.NONE, Compatibility.FULL):
        with pytest.raises(ConfigError, match="a default is none of its field's type"):
            conflicts(rule, SchemaType.AVRO, taken, before)


def test_defaults_of_many_values_are_counted() -> None:
    text = _with_default(_INTS, [1] * 30_000)
    with pytest.raises(ConfigError, match="too large to be compared"):
        avro_type(text, StepBudget(20_000), has_defaults_checked=True)


_WORDS = st.sampled_from([None, True, 0, 1, 2, 1.5, "", "ab", [], [1], {}, {"a": 1}, {"b": "x"}])
_BOUND = st.integers(0, 3)


def _schemas() -> st.SearchStrategy[Any]:
    def extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inner, min_size=1, max_size=2)
        return st.fixed_dictionaries(
            {},
            optional={
                "type": st.lists(
                    st.sampled_from(
                        ["null", "boolean", "integer", "number", "string", "array", "object"]
                    ),
                    min_size=1,
                    max_size=3,
                    unique=True,
                ),
                "enum": st.lists(_WORDS, min_size=1, max_size=3),
                "const": _WORDS,
                "minimum": _BOUND,
                "exclusiveMaximum": _BOUND,
                "maxLength": _BOUND,
                "minProperties": st.integers(0, 1),
                "items": inner,
                "minItems": st.integers(0, 1),
                "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
                "additionalProperties": inner,
                "required": st.lists(st.sampled_from("ab"), max_size=1),
                "anyOf": several,
                "oneOf": several,
                "allOf": several,
                "not": inner,
            },
        )

    return st.recursive(st.booleans(), extended, max_leaves=4)


@pytest.mark.long
@settings(deadline=None, max_examples=1_500, derandomize=True)
@given(_schemas(), _schemas(), st.lists(_WORDS, min_size=13, max_size=13))
def test_what_a_json_schema_is_said_to_read_it_reads(
    reader: Any, writer: Any, values: list[Any]
) -> None:
    for one in (reader, {"allOf": [reader]}, {"anyOf": [reader, {"type": "null"}]}):
        try:
            check_json_reads(one, writer, StepBudget())
        except UnreadableError:
            continue
        writes = jsonschema.Draft202012Validator(writer)
        reads = jsonschema.Draft202012Validator(one)
        for value in values:
            assert not writes.is_valid(value) or reads.is_valid(value), value


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


NAME, AGE = {"name": {"type": "string"}}, {"age": {"type": "integer"}}
LIST = {
    "$ref": "#/definitions/list",
    "definitions": {"list": {"properties": {"next": {"$ref": "#/definitions/list"}}}},
}


@pytest.mark.parametrize(
    ("reader", "writer", "is_read"),
    [
        (_object(NAME), _object(NAME, required=["name"]), True),
        (_object(NAME, required=["name"]), _object(NAME), False),
        # An open object may have had any `age` before.
        (_object(NAME | AGE), _object(NAME), False),
        (_object(NAME | AGE), _object(NAME, additionalProperties=False), True),
        (_object(NAME), _object(NAME | AGE), True),
        ({"type": ["string", "null"]}, {"type": "string"}, True),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, {"type": "string"}, True),
        ({"type": "number"}, {"type": "integer"}, True),
        ({"minimum": 1}, {"type": "string"}, True),
        ({"minimum": 1}, {"minimum": 1, "type": "number"}, True),
        ({"pattern": "a"}, {"pattern": "b"}, False),
        ({"enum": [1]}, {"enum": [True]}, False),
        ({"$ref": "other.json"}, {}, False),
        ({"$ref": "#"}, {}, False),
        ({"$ref": "#/definitions/nothing"}, {}, False),
        ({**LIST, "title": "another"}, LIST, True),
        ({"unevaluatedProperties": False}, {"type": "object"}, False),
        # Since draft 2019-09 what stands beside a reference counts, too.
        ({**LIST, "minProperties": 1}, {**LIST, "title": "another"}, False),
        (LIST, {**LIST, "minProperties": 1}, True),
        ({"properties": {"a": {"$id": "b", "$ref": "#/x"}}, "x": True}, {}, False),
        ({"$ref": "#/a/b", "a": {"$id": "c", "b": True}}, {}, False),
    ],
)
def test_json_schemas_are_compared(reader: Any, writer: Any, is_read: bool) -> None:
    try:
        check_json_reads(reader, writer, StepBudget())
    except UnreadableError:
        assert not is_read
    else:
        assert is_read


F = FieldDescriptorProto


def proto(*fields: F, package: str = "shop", name: str = "Order") -> FileDescriptorProto:
    file = FileDescriptorProto(name="order.proto", package=package, syntax="proto3")
    message = file.message_type.add(name=name)
    message.field.extend(fields)
    line = message.nested_type.add(name="Line")
    line.field.add(name="n", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    return file


def field(number: int, kind: Any, *, label: Any = F.LABEL_OPTIONAL, **more: Any) -> F:
    return F(name=f"f{number}", number=number, type=kind, label=label, **more)


def text_of(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def reads_proto(reader: FileDescriptorProto, writer: FileDescriptorProto) -> bool:
    files = [proto_file(text_of(one), StepBudget()) for one in (reader, writer)]
    try:
        check_proto_reads(*files, StepBudget())
    except UnreadableError:
        return False
    return True


SINGLE = field(2, F.TYPE_MESSAGE, type_name=".shop.Order.Line")
LINES = field(2, F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".shop.Order.Line")


@pytest.mark.parametrize(
    ("reader", "writer", "is_read"),
    [
        (proto(field(1, F.TYPE_INT32), LINES), proto(field(1, F.TYPE_INT32)), True),
        (proto(field(1, F.TYPE_INT32)), proto(field(1, F.TYPE_INT32), LINES), True),
        (proto(field(1, F.TYPE_INT64)), proto(field(1, F.TYPE_INT32)), True),
        (proto(field(1, F.TYPE_SINT32)), proto(field(1, F.TYPE_INT32)), False),
        (proto(field(1, F.TYPE_BYTES)), proto(field(1, F.TYPE_STRING)), True),
        (proto(field(1, F.TYPE_STRING)), proto(field(1, F.TYPE_BYTES)), False),
        (proto(LINES), proto(SINGLE), False),
        (proto(field(1, F.TYPE_INT32, label=F.LABEL_REQUIRED)), proto(), False),
        (proto(name="Other"), proto(), False),
        (
            proto(field(1, F.TYPE_INT32, oneof_index=0), field(3, F.TYPE_INT32, oneof_index=0)),
            proto(field(1, F.TYPE_INT32), field(3, F.TYPE_INT32)),
            False,
        ),
        (
            proto(field(1, F.TYPE_INT32, oneof_index=0), field(3, F.TYPE_INT32, oneof_index=0)),
            proto(field(1, F.TYPE_INT32, oneof_index=1), field(3, F.TYPE_INT32, oneof_index=1)),
            True,
        ),
    ],
)  # fmt: skip
def test_protobuf_is_compared_by_its_wire(
    reader: FileDescriptorProto, writer: FileDescriptorProto, is_read: bool
) -> None:
    assert reads_proto(reader, writer) == is_read


def test_a_message_within_a_message_is_compared() -> None:
    other = proto(LINES)
    other.message_type[0].nested_type[0].field[0].type = F.TYPE_STRING

    assert reads_proto(proto(LINES), proto(LINES))
    assert not reads_proto(other, proto(LINES))


def test_a_file_that_imports_another_one_is_refused() -> None:
    file = proto()
    file.dependency.append("google/protobuf/timestamp.proto")
    assert proto_file(text_of(file), StepBudget()).first == ".shop.Order"

    file.dependency.append("mine.proto")
    with pytest.raises(ConfigError, match="imports another file"):
        proto_file(text_of(file), StepBudget())


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_a_file_or_refused(content: bytes) -> None:
    try:
        proto_file(base64.b64encode(content).decode(), StepBudget())
    except ConfigError:
        return


@given(st.integers(0, 400), st.integers(0, 255))
def test_each_damaged_descriptor_is_a_file_or_refused(at: int, value: int) -> None:
    content = bytearray(proto(field(1, F.TYPE_INT32), LINES).SerializeToString())
    content[at % len(content)] = value
    try:
        proto_file(base64.b64encode(content).decode(), StepBudget())
    except ConfigError:
        return


def _wide(branches: int) -> str:
    """A record whose fields are unions of records, which are tried one by one."""
    inner = [
        {"type": "record", "name": f"r{n}", "fields": [{"name": "x", "type": ["null", "t"]}]}
        for n in range(branches)
    ]
    fields = [{"name": "a", "type": ["null", *inner]}]
    return json.dumps({"type": "record", "name": "t", "fields": fields})


def test_a_comparison_without_end_is_refused_in_time() -> None:
    texts = [_wide(n) for n in (400, 399)]
    assert all(len(text) < TEXT_SIZE_MAX for text in texts)

    begun = time.process_time()
    steps = StepBudget()
    with contextlib.suppress(ConfigError, UnreadableError):
        check_avro_reads(avro_type(texts[1], steps), avro_type(texts[0], steps), steps)
    assert time.process_time() - begun < 5


def test_large_values_are_not_compared_again_and_again() -> None:
    large = {"$defs": {"large": {"enum": [list(range(4_000))]}}}
    reader = {"anyOf": [{"$ref": "#/$defs/large"}] * 1_200, **large}
    writer = {
        "anyOf": [{"$ref": "#/$defs/large"}] * 2,
        "$defs": {"large": {"enum": [[7] * 16_000]}},
    }
    assert all(len(json.dumps(one)) < TEXT_SIZE_MAX for one in (reader, writer))

    begun = time.process_time()
    with contextlib.suppress(ConfigError, UnreadableError):
        check_json_reads(reader, writer, StepBudget())
    assert time.process_time() - begun < 2


def test_symbols_that_are_compared_are_counted() -> None:
    texts = [
        json.dumps({"type": "enum", "name": "e", "symbols": [f"S{n}" for n in range(count)]})
        for count in (4_000, 1)
    ]
    steps = StepBudget()
    with pytest.raises(UnreadableError, match="symbols without a default: S1, S10, S100"):
        check_avro_reads(avro_type(texts[1], steps), avro_type(texts[0], steps), steps)
    assert StepBudget().left - steps.left > 200


def test_a_reason_is_short_however_long_the_names() -> None:
    records = [
        json.dumps({"type": "record", "name": "n" * size, "fields": []}) for size in (9_000, 9_001)
    ]
    with pytest.raises(UnreadableError) as told:
        check_avro_reads(*(avro_type(one, StepBudget()) for one in records), StepBudget())
    assert len(told.value.reason) == 200


@pytest.mark.parametrize("damaged", [{"number": 1}, {"number": 0}, {"name": ""}])
def test_a_damaged_field_is_named(damaged: dict[str, Any]) -> None:
    file = proto(field(1, F.TYPE_INT32), field(2, F.TYPE_INT32))
    for key, value in damaged.items():
        setattr(file.message_type[0].field[1], key, value)

    with pytest.raises(ConfigError, match="not a Protobuf schema"):
        proto_file(text_of(file), StepBudget())


def test_all_types_are_compared() -> None:
    assert {*SchemaType} == {"AVRO", "JSON", "PROTOBUF"}


def refused_at_once(kind: SchemaType, texts: list[str], rule: Compatibility) -> None:
    """The last text against the others is refused, or compared, in little time of the processor."""
    before = [SchemaVersion(number, number, kind, text) for number, text in enumerate(texts[:-1])]
    begun = time.process_time()
    with contextlib.suppress(ConfigError):
        conflicts(rule, kind, texts[-1], before, steps=StepBudget(spent_ns=time.process_time_ns))
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("target", ["a", "x" * 2_000, "~1" * 500, "%25" * 300])
def test_references_that_are_long_are_steps(target: str) -> None:
    """Of 300 that all lead to one long one: 26,000 parts at each look, for one step."""
    count = 52_000 // (len(target) + 1)
    place = "#/" + "/".join([target] * count)

    def text(title: str) -> str:
        references = [{"$ref": "#/d", "t": number} for number in range(300)]
        return json.dumps({"anyOf": references, "d": {"$ref": place}, "title": title})

    refused_at_once(
        SchemaType.JSON, [text(str(n)) for n in range(45)], Compatibility.FULL_TRANSITIVE
    )


def test_fields_that_a_default_leaves_out_are_steps() -> None:
    fields = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(1_000)]
    record = {"type": "record", "name": "r", "fields": fields}
    outer = {"name": "a", "type": {"type": "array", "items": record}, "default": [{}] * 20_000}
    text = json.dumps({"type": "record", "name": "o", "fields": [outer]})
    begun = time.process_time()
    with pytest.raises(ConfigError, match="too large to be compared"):
        avro_type(text, StepBudget(), has_defaults_checked=True)
    assert time.process_time() - begun < 2


def test_names_that_are_long_are_steps() -> None:
    def text(names: list[str]) -> str:
        fields = [
            {"name": name, "type": {"type": "fixed", "size": 1, "name": name}} for name in names
        ]
        return json.dumps({"type": "record", "name": "r" * 9_000, "fields": fields})

    union = json.dumps(
        [{"type": "fixed", "name": "n" * 90 + str(n), "size": 1} for n in range(500)]
    )
    texts = [text([f"{'n' * 900}{number}{n}" for n in range(30)]) for number in range(9)]
    refused_at_once(SchemaType.AVRO, [*texts, union], Compatibility.FULL_TRANSITIVE)


@pytest.mark.parametrize("inner", ["aliases", "fields"])
def test_names_within_a_long_namespace_are_steps(inner: str) -> None:
    """Each of 3,000 short names is as long as the namespace that stands there once."""
    names: object = [f"a{number}" for number in range(3_000)]
    if inner == "fields":
        names = [{"name": f"a{number}", "type": "r"} for number in range(3_000)]
    record = {"type": "record", "name": "r", "namespace": "n" * 20_000, "fields": [], inner: names}
    text = json.dumps(record)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="too large to be compared"):
            avro_type(text, StepBudget())
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_step_that_takes_too_long_ends_a_comparison() -> None:
    passed = iter(range(0, 10**12, 10**8))
    steps = StepBudget(spent_ns=lambda: next(passed))
    with pytest.raises(ConfigError, match="too large to be compared"):
        for _ in range(10_000):
            steps.take()
