"""Random numbers from a seed: splitmix64 (Steele, Lea, Flood 2014), the same on every machine."""

from __future__ import annotations

_WORD_MASK = (1 << 64) - 1


class Chance:
    """A sequence of numbers that its seed alone determines; ``word`` is where it is."""

    def __init__(self, seed: int) -> None:
        self.word = seed & _WORD_MASK

    def bits(self) -> int:
        """The next 64 bits."""
        self.word = (self.word + 0x9E3779B97F4A7C15) & _WORD_MASK
        mixed = self.word
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD_MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD_MASK
        return mixed ^ (mixed >> 31)

    def between(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both possible."""
        assert low <= high, (low, high)
        return low + self.bits() % (high - low + 1)
