"""What several repeats of one thing say: the median, the range, and how sure it is."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """The median of `n` repeats with the smallest and the largest value."""

    median: float
    minimum: float
    maximum: float
    n: int

    @property
    def confidence(self) -> float | None:
        """How likely the range holds the true median; null for a single repeat.

        The range misses it only when all n independent values fall on one side, each with
        probability 1/2: 1 - 2**(1-n), whatever the distribution (order statistics).
        """
        return 1.0 - 2.0 ** (1 - self.n) if self.n > 1 else None

    @property
    def words(self) -> str:
        """The interval in words, or that there is none."""
        if self.confidence is None:
            return "one repeat: no interval"
        return (
            f"{self.n} repeats; the true median lies within their range"
            f" with {self.confidence * 100:.3g} % confidence"
        )


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """The estimate from the values that are there; null when there is none."""
    known = [v for v in values if v is not None]
    if not known:
        return None
    return Estimate(statistics.median(known), min(known), max(known), len(known))
