"""Streams of random numbers."""

WORD = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
ROW_STEP = 0xD1342543DE82EF95


def mix(word: int) -> int:
    """Return SplitMix64's scrambling of a 64-bit word.

    >>> hex(mix(GOLDEN_GAMMA))
    '0xe220a8397b1dcdaf'
    """
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


class SplitMix64:
    """A stream of random numbers: a 64-bit counter that takes large odd steps, scrambled."""

    def __init__(self, state: int) -> None:
        self.state = state & WORD

    def word(self) -> int:
        """Return 64 random bits."""
        self.state = (self.state + GOLDEN_GAMMA) & WORD
        return mix(self.state)

    def below(self, n: int) -> int:
        """Return an integer drawn uniformly from ``0 .. n - 1``."""
        return ((self.word() >> 32) * n) >> 32
