"""What is judged of clients of a cluster finds what breaks each promise, once each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.cluster_change import CHANGES, KEYED, check
from tests.process.cluster_history import KEYS, History

GROUPS = ("orders-a", "orders-b")


def said(*lines: str, key: int = 0, count: int = 3) -> list[str]:
    """What a client says of so many messages of a key, which it is given in their order."""
    sent = [f"acked {KEYED} {key} {number} {1_000 + 10 * number}" for number in range(count)]
    return [*sent, *(read(number, key=key) for number in range(count)), *lines]


def read(
    number: int, *, key: int = 0, group: str = GROUPS[0], queue: int = 0, offset: int = -1
) -> str:
    """One that it was given."""
    place = number if offset < 0 else offset
    return f"read {KEYED} one {key} {number} {group} {queue} {place} {2_000 + number}"


def history(folder: Path, lines: list[str], sent: int = 3) -> History:
    """A client's, which has ended."""
    made = History("one", folder / "said", delivers_in_order=True, keeps_places=True)
    made.said.write_text("\n".join([*lines, f"stopped {sent}", ""]))
    made.look()
    return made


def test_what_was_promised_passes_also_what_comes_again(tmp_path: Path) -> None:
    again = [read(1), read(1, offset=7), "refused 1500 0 NotLeaderError('no leader')"]
    one = history(tmp_path, said(*again))

    check([one])
    assert one.stored_twice() == [("one", "0", 1)]
    assert one.given_again() == 1
    assert dict(one.refused) == {"NotLeaderError of a key": 1}


def test_lines_count_that_are_written_in_pieces(tmp_path: Path) -> None:
    one = History("one", tmp_path / "said", delivers_in_order=True, keeps_places=True)
    text = "\n".join([*said(), "stopped 3", ""])
    for end in range(0, len(text) + 1, 7):
        one.said.write_text(text[:end])
        one.look()
    one.said.write_text(text)
    one.look()

    check([one])


@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        pytest.param([one for one in said() if "read bills one 0 1" not in one], 3, id="lost"),
        pytest.param(said(), 4, id="never acknowledged"),
        pytest.param(
            [*said(count=1), f"acked {KEYED} 0 1 1", f"acked {KEYED} 0 2 1", read(2), read(1)],
            3,
            id="given in another order",
        ),
        pytest.param(
            [
                *said(count=1),
                *(f"acked {KEYED} 0 {number} 1" for number in (1, 2)),
                read(1, offset=5),
                read(2, offset=4),
            ],
            3,
            id="stored in another order",
        ),
        pytest.param(
            [
                line
                for number in range(CHANGES + 2)
                for line in (
                    f"acked {KEYED} 0 {number} 1",
                    read(number, group=GROUPS[number % 2]),
                )
            ],
            CHANGES + 2,
            id="a key that is now here, now there",
        ),
    ],
)
def test_what_breaks_a_promise_is_found(tmp_path: Path, lines: list[str], sent: int) -> None:
    one = history(tmp_path, lines, sent)

    with pytest.raises(AssertionError):
        check([one])


def test_gaps_are_the_longest_times_without_an_acknowledgement(tmp_path: Path) -> None:
    lines = [f"acked {KEYED} {key} 0 {1_000 + 100 * key}" for key in range(KEYS)]
    one = history(tmp_path, [*lines, f"acked {KEYED} 0 1 1900"])

    assert one.gap_ms(1_000, 1_900) == 600
    assert one.key_gap_ms(1_000, 1_900) == 900
    assert one.gap_ms(0, 1_900) == 1_000
    assert one.last_ack_ms() == 1_900
