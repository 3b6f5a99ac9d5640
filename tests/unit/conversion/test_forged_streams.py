"""Backup streams that somebody else wrote to: nothing stands elsewhere, nothing moves unseen."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from ledgermq.conversion.stream.repository import Repository
from ledgermq.conversion.stream.sealed_piece import seal
from ledgermq.conversion.stream.stream_places import places_at
from ledgermq.conversion.stream.table_pieces import read_tables
from ledgermq.model.exit_status import EXIT_STORAGE
from tests.unit.conversion.streamed_store import MESSAGES, StreamedStore, files_of

KEY = "00112233445566778899aabbccddeeff" * 2
FORGED = [
    ("self_id", "x/../../OUT"),
    ("self_id", "x/../../../../store/dledger-n0"),
    ("self_id", ".."),
    ("self_id", "n1"),
    ("self_id", None),
    ("cluster", "zz"),
    ("cluster", "00" * 16),
    ("log", "commitlog"),
    ("log", "../x"),
    ("log_file_size", 1 << 40),
    ("log_file_size", -1),
    ("queue_file_size", 7),
    ("hash_slots", 0),
    ("index_items", 1 << 62),
    ("with_index", "yes"),
    ("delay_levels", "x" * 9),
    ("end", "0"),
    ("index", None),
    ("committed", 1 << 70),
    ("more", 1),
]


def put_again(repository: Path, change: dict[str, object], names: dict[str, str]) -> None:
    """Put all tables once more, which say something else, as whoever may write there can."""
    for place in places_at(str(repository)).streams().values():
        stream = Repository(place, None)
        for at in list(stream.tables):
            piece = read_tables(stream, at)
            header = {
                "manifest": {**asdict(piece.manifest), **change},
                "ends_position": piece.ends_position,
                "sizes": [
                    (names.get(name, name), len(one)) for name, one in piece.documents.items()
                ],
            }
            place.delete(f"tables/{at:020d}")
            stream.put_tables(at, header, b"".join(piece.documents.values()))


@pytest.fixture
def store(tmp_path: Path) -> StreamedStore:
    made = StreamedStore(tmp_path)
    made.commit(MESSAGES - 1)
    assert made.stream() == 0
    return made


@pytest.mark.parametrize(("field", "value"), FORGED)
def test_tables_say_what_the_stream_says_and_nothing_that_no_store_has(
    store: StreamedStore, tmp_path: Path, field: str, value: object
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    put_again(store.repository, {field: value}, {})
    before = files_of(tmp_path)

    assert store.verify("--scratch", str(scratch)) == EXIT_STORAGE
    assert store.restore(tmp_path / "again") == EXIT_STORAGE
    shutil.rmtree(tmp_path / "again", ignore_errors=True)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    "name",
    ["ledgermq/../../x", "config/../../../x", "/tmp/x", "dledger-n0/currterm", "config/", "x", "..",
     "config/" + "x" * 256, "ledgermq/.", "config/a\0b"],
)  # fmt: skip
def test_tables_name_no_file_outside_of_a_store(
    store: StreamedStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    put_again(store.repository, {}, {"config/topics.json": name})
    before = files_of(tmp_path)

    assert store.verify() == EXIT_STORAGE
    assert "tables name a file outside of a store" in capsys.readouterr().err
    assert store.restore(tmp_path / "again") == EXIT_STORAGE
    shutil.rmtree(tmp_path / "again", ignore_errors=True)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("field", "value"),
    [("self_id", "x/../.."), ("self_id", "n0\n"), ("cluster", 7), ("log", "x"),
     ("log_file_size", 0), ("index_file_size", 1 << 40), ("stream", "zz"), ("stream", ""),
     ("version", 9)],
)  # fmt: skip
def test_a_stream_says_nothing_of_itself_that_none_is(
    store: StreamedStore, field: str, value: object
) -> None:
    about = store.opened().about()
    assert about is not None
    header: dict[str, object] = {"version": 2, **asdict(about), field: value}
    content = b"".join(seal("about", header, b"", key=None))
    (store.streamed / "about").write_bytes(content)

    assert store.verify() != 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path: a runtime directory is in it."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def other_stream(folder: Path, key: str) -> StreamedStore:
    made = StreamedStore(folder, key=key)
    made.commit(MESSAGES - 1)
    assert made.stream() == 0
    return made


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
@pytest.mark.parametrize("moved", [("tables",), ("data",), ("tables", "data")])
def test_pieces_of_another_stream_of_the_same_key_are_found(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str, moved: tuple[str, ...]
) -> None:
    """Of the same names, of a log of the same bytes even: only the stream is another one."""
    one, other = (other_stream(folder / name, key) for name in ("one", "other"))
    about = (one.streamed / "about").read_bytes()
    assert [set(files_of(store.streamed)) for store in (one, other)] == [
        set(files_of(one.streamed))
    ] * 2
    for kind in moved:
        shutil.rmtree(one.streamed / kind)
        shutil.copytree(other.streamed / kind, one.streamed / kind)
    capsys.readouterr()

    assert one.verify() == EXIT_STORAGE
    assert str(one.streamed) in capsys.readouterr().err
    assert one.restore(folder / "again") == EXIT_STORAGE

    # Nor does it help to say that it is the other one, where only some pieces were moved.
    if moved != ("tables", "data"):
        shutil.copy(other.streamed / "about", one.streamed / "about")
        assert one.verify() == EXIT_STORAGE
        (one.streamed / "about").write_bytes(about)


def begun_before(store: StreamedStore) -> None:
    """Let the stream be one that 0.3.1 has begun: nothing in it is bound to it."""
    stream = store.opened()
    about = stream.about()
    assert about is not None
    key = bytes.fromhex(KEY) if store.words else None
    for name in files_of(store.streamed):
        with stream.read(name) if name != "about" else stream._opened(name, stream="") as piece:
            header, content = dict(piece.header), b"".join(piece.content)
        if name == "about":
            header["version"] = 1
            del header["stream"]
        (store.streamed / name).write_bytes(b"".join(seal(name, header, content, key=key)))


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
def test_a_stream_that_was_begun_before_is_gone_on_with_and_read(folder: Path, key: str) -> None:
    store, again = StreamedStore(folder, key=key), folder / "again"
    store.commit(2)
    assert store.stream() == 0
    begun_before(store)
    versions = {content[8] for content in files_of(store.streamed).values()}
    assert versions == {1}
    assert store.verify() == 0

    store.commit(MESSAGES - 1)
    assert store.stream() == 0
    assert {content[8] for content in files_of(store.streamed).values()} == {1}
    assert store.verify() == 0
    assert store.restore(again) == 0
    assert (again / "dledger-n0/data").is_dir()


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
def test_a_piece_of_before_is_none_of_a_stream_that_binds_its_own(folder: Path, key: str) -> None:
    one, other = (other_stream(folder / name, key) for name in ("one", "other"))
    begun_before(other)
    name = next(name for name in files_of(one.streamed) if name.startswith("data/"))
    shutil.copy(other.streamed / name, one.streamed / name)

    assert one.verify() == EXIT_STORAGE


def test_what_a_stream_says_of_itself_is_json_of_a_depth_that_is_read(
    store: StreamedStore,
) -> None:
    about = json.dumps({"version": 2}).encode()
    deep = about[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (store.streamed / "about").write_bytes(b"".join(_of_line(deep)))

    assert store.verify() == EXIT_STORAGE


def _of_line(line: bytes) -> list[bytes]:
    """A piece whose header is that line."""
    from ledgermq.conversion.stream import sealed_piece

    head = sealed_piece._HEAD.pack(b"LMQPIECE", 1, 2, 0, len(line), bytes(8), bytes(32))
    return [head, *map(bytes, sealed_piece._sealer(head, None, b"")(0, line))]
