"""Print the README's table of measured facts, whose figures are read from the pages of measurements.

::

    python docs/_site/facts.py
"""

from pathlib import Path
from typing import NamedTuple

MEASUREMENTS = Path(__file__).parents[1] / "measurements"
HEADER = "| task | this package | others | others are better |\n|---|---|---|---|\n"


class Cell(NamedTuple):
    """A figure of a page: the part of a cell between commas or slashes, in a row of the first table of a section."""

    page: str
    section: str
    row: str
    column: int
    part: int = 0

    def read(self) -> str:
        """Return the figure."""
        lines = (MEASUREMENTS / f"{self.page}.md").read_text(encoding="utf-8").splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith(self.section))
        row = next(line for line in lines[start:] if line.startswith(f"| {self.row} |"))
        cell = row.split(" | ")[self.column].removesuffix(" |")
        figure = cell.split(", " if ", " in cell else " / ")[self.part]
        return figure.partition(" ± ")[0].strip()

    def milliseconds(self) -> str:
        """Return the figure, which is in microseconds, in milliseconds."""
        return f"{float(self.read().replace(',', '')) / 1000:,.0f} ms"


def facts() -> list[tuple[str, str, str, str]]:
    """Return the rows of the table."""
    shots = [Cell("texts", "## Text classifier", name, 1).read() for name in CLASSIFIERS]
    live = [Cell("texts", "The next table adds", "30, 7", column).read() for column in (1, 5)]
    clicks = [Cell("stores", "| MemoryStore, Rocchio", "clicks", 3, part).read() for part in (0, 1)]
    both = [Cell("stores", "## Words and vectors", name, 3).read() for name in HYBRIDS]
    change = [Cell("stores", "| 300,000 texts", name, 5).milliseconds() for name in ("store", "bm25s", "tantivy")]
    ours, theirs = (
        "{}, {} us".format(*(Cell("stores", "## Filters", "1 %", column, part).read() for part in (0, 2)))
        for column in (1, 3)
    )
    bandits = [Cell("bandits", "## CMTBandit", name, 1).read() for name in BANDITS]
    pages = "docs/measurements"
    return [
        (
            f"[intents]({pages}/texts.md), 5 examples each: error",
            shots[0],
            f"logistic regression {shots[1]}, `LinearSVC` {shots[2]}",
            "on some sets with many examples, by 0.01",
        ),
        (
            "30 more intents without a new fit: found",
            live[0],
            f"`LinearSVC`, fitted again, {live[1]}",
            "for sentences made from patterns",
        ),
        (
            f"[answers that learn from clicks]({pages}/stores.md#learning-from-rewards): first is right",
            clicks[0],
            f"similarity 0.560, Rocchio's method {clicks[1]}",
            "if rewards say very little, by 0.03",
        ),
        (
            f"[search by words and vectors]({pages}/stores.md#words-and-vectors): nDCG@10",
            both[0],
            f"bm25s and faiss, ranks fused, {both[1]}",
            "",
        ),
        (
            f"[a change of 300,000 texts]({pages}/stores.md#words-alone) and a query",
            change[0],
            f"bm25s {change[1]}",
            f"tantivy, {change[2]}",
        ),
        (
            f"[a filter]({pages}/stores.md#filters) that 1 % pass: recall, time",
            ours,
            f"faiss IVF {theirs}",
            "NumPy, for fewer than 1 % in batches",
        ),
        (
            f"[bandit]({pages}/bandits.md#cmtbandit) with 77 actions: mean reward",
            bandits[0],
            f"`LinUCB` {bandits[1]}, Vowpal Wabbit {bandits[2]}",
            "`LinUCB` is faster with few actions",
        ),
    ]


CLASSIFIERS = (
    "`TextClassifier`",
    "`LogisticRegression`, words and characters",
    "`LinearSVC`, words and characters",
)
HYBRIDS = ("store, both", "bm25s and faiss, reciprocal ranks")
BANDITS = ("`CMTBandit`", "`LinUCB`, 64 components", "Vowpal Wabbit, `cb_explore_adf`")


def table() -> str:
    """Return the table."""
    return HEADER + "".join(f"| {' | '.join(row)} |\n" for row in facts())


if __name__ == "__main__":
    print(table(), end="")
