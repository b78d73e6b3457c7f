r"""Correct misspelt words and learn from corrections.

The package codespell lists misspellings with the intended words. This script learns the costs of edits from them,
stores the words in a ``SequenceMemory``, and saves the memory to a file::

    python examples/spelling.py --memory words.cmt recieve definatly
    python examples/spelling.py --memory words.cmt --correct thsi this
    python examples/spelling.py --memory words.cmt thsi

The first call learns the costs, which takes a minute or two; ``--examples`` and ``--rounds`` limit this time. After a
correction, the memory returns the intended word for the same misspelling. ::

    python examples/spelling.py --evaluate

learns from the misspellings of four fifths of the words and measures the accuracy on misspellings of the other words.
Needs the package codespell.
"""

import argparse
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import numpy as np

from cmt_numba.sequences import EditDistance, SequenceMemory

LETTERS = "abcdefghijklmnopqrstuvwxyz'-"


def misspellings(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of misspelling and intended word in lower case, from lines with a single intended word."""
    pairs = []
    for line in lines:
        wrong, _, right = line.strip().lower().partition("->")
        if right and "," not in right and set(wrong + right) <= set(LETTERS):
            pairs.append((wrong, right))
    return pairs


def listed_misspellings() -> list[tuple[str, str]]:
    """Return codespell's pairs of misspelling and intended word."""
    try:
        package = files("codespell_lib")
    except ModuleNotFoundError:
        raise SystemExit("spelling.py needs the package codespell: pip install 'cmt-numba[examples]'") from None
    text = package.joinpath("data/dictionary.txt").read_text(encoding="utf-8")
    return misspellings(text.splitlines())


def learned_distance(pairs: list[tuple[str, str]], words: list[str], n_examples: int, n_rounds: int) -> EditDistance:
    """Return an edit distance with costs learned from a random sample of misspellings."""
    place = {word: i for i, word in enumerate(words)}
    some = np.random.default_rng(0).permutation(len(pairs))[:n_examples]
    distance = EditDistance(
        LETTERS, transposition=1.0, symmetric=False, n_rounds=n_rounds, verbose=True, random_state=0
    )
    return distance.fit(words, [pairs[i][0] for i in some], [place[pairs[i][1]] for i in some])


def memory_of(words: list[str], distance: EditDistance) -> SequenceMemory:
    """Return a memory of words with their positions as ids."""
    memory = SequenceMemory(distance, random_state=0)
    memory.insert(words)
    return memory


def guesses(memory: SequenceMemory, words: list[str], asked: list[str], k: int) -> list[list[str]]:
    """Return the ``k`` nearest words for each query, nearest first."""
    return [[words[i] for i in ids if i >= 0] for ids in memory.query(asked, k).ids]


def correct(memory: SequenceMemory, words: list[str], wrong: str, right: str) -> None:
    """Learn a correction, and store the intended word if it is new."""
    if right not in words:
        memory.insert([right])
        words.append(right)
    memory.feedback([wrong], [words.index(right)], [1.0])


def evaluate(pairs: list[tuple[str, str]], n_queries: int, n_examples: int, n_rounds: int) -> tuple[float, float]:
    """Return the accuracy at 1 and at 5 on misspellings of words that are not used for training."""
    words, rng = sorted({right for _, right in pairs}), np.random.default_rng(0)
    known = set(rng.permutation(words)[: 4 * len(words) // 5])
    others = [pair for pair in pairs if pair[1] not in known]
    asked = [others[i] for i in rng.permutation(len(others))[:n_queries]]
    distance = learned_distance([pair for pair in pairs if pair[1] in known], words, n_examples, n_rounds)
    found = guesses(memory_of(words, distance), words, [wrong for wrong, _ in asked], 5)
    first = np.mean([right == row[0] for (_, right), row in zip(asked, found, strict=True)])
    return float(first), float(np.mean([right in row for (_, right), row in zip(asked, found, strict=True)]))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Correct misspelt words and learn from corrections.")
    parser.add_argument("words", nargs="*", help="words to correct")
    parser.add_argument("--memory", type=Path, default=Path("words.cmt"), help="file that stores the memory")
    parser.add_argument("--correct", nargs=2, metavar=("WRONG", "RIGHT"), help="the intended word, to learn")
    parser.add_argument("--examples", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--evaluate", action="store_true")
    options = parser.parse_args()
    if options.evaluate:
        print("Learning the costs of edits, and correcting 1,000 misspellings of other words", flush=True)
        shares = evaluate(listed_misspellings(), 1000, options.examples, options.rounds)
        print("first: {:.3f}, among five: {:.3f}".format(*shares))
        return
    names = options.memory.with_suffix(".txt")
    if options.memory.exists():
        memory, words = SequenceMemory.load(options.memory), names.read_text(encoding="utf-8").split("\n")
    else:
        pairs = listed_misspellings()
        print(f"Learning from {options.examples:,} misspellings, once for {options.memory}", flush=True)
        words = sorted({right for _, right in pairs})
        memory = memory_of(words, learned_distance(pairs, words, options.examples, options.rounds))
    if options.correct:
        correct(memory, words, *(word.lower() for word in options.correct))
    if options.correct or not options.memory.exists():
        memory.save(options.memory)
        names.write_text("\n".join(words), encoding="utf-8")
    if options.words:
        asked = [word.lower() for word in options.words]
        for word, row in zip(asked, guesses(memory, words, asked, 5), strict=True):
            print(f"{word}: {', '.join(row)}")


if __name__ == "__main__":
    main()
