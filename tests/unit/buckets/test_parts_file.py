"""Parts file: reads as a file of the same bytes does."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.conversion.stream.piece_bucket import PartsFile

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 40)),
        st.tuples(st.just("seek"), st.integers(0, 60)),
        st.tuples(st.just("end"), st.integers(-3, 3)),
    ),
    max_size=20,
)


@given(parts=st.lists(st.binary(max_size=20), max_size=6), steps=STEPS)
def test_it_reads_as_a_file_of_the_same_bytes(
    parts: list[bytes], steps: list[tuple[str, int]]
) -> None:
    whole = io.BytesIO(b"".join(parts))
    views = [memoryview(part) if number % 2 else part for number, part in enumerate(parts)]
    with PartsFile(views) as file:
        for verb, number in steps:
            if verb == "read":
                assert file.read(number) == whole.read(number)
            elif verb == "seek":
                assert file.seek(number) == whole.seek(number)
            elif number >= -len(whole.getvalue()):
                assert file.seek(number, io.SEEK_END) == whole.seek(number, io.SEEK_END)
            assert file.tell() == whole.tell()


def test_there_is_no_place_before_the_beginning() -> None:
    with PartsFile([b"content"]) as file, pytest.raises(ValueError, match="before the beginning"):
        file.seek(-8, io.SEEK_END)
