"""Compare the accuracy of Kim's network on seven data sets with the paper.

    python examples/learned_keys/sentences.py --data path/to/folder --sets trec cr --forms rand --folds 1

Expects ``sentclass/{mr,subj,cr,mpqa,sst1,sst2,trec}.jsonl.gz`` with a line ``{"text": ..., "label": ...,
"split": ...}`` for each sentence. Data sets without splits use ten-fold cross-validation; ``--folds`` limits the number
of folds. With ``--phrases``, training on sst1 and sst2 includes phrases, as in the paper (``sst1_phrases.jsonl.gz``).
``--vectors`` is a file written by ``SubwordVectors.save`` for forms that need vectors. Needs the extra ``jax``.
"""

import argparse
import gzip
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from convolution import FORMS, ConvolutionalKeys

from cmt_numba.text import SubwordVectors

PAPER = {
    "mr": (76.1, 81.0, 81.5, 81.1),
    "sst1": (45.0, 45.5, 48.0, 47.4),
    "sst2": (82.7, 86.8, 87.2, 88.1),
    "subj": (89.6, 93.0, 93.4, 93.2),
    "trec": (91.2, 92.8, 93.6, 92.2),
    "cr": (79.8, 84.7, 84.3, 85.0),
    "mpqa": (83.4, 89.6, 89.5, 89.4),
}
"""Accuracies of Table 2, with vectors of 300 components learned from 100 billion words."""

CASED = ("trec",)  # not converted to lower case in the paper


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a compressed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def columns(lines: list[dict[str, Any]]) -> tuple[list[str], np.ndarray]:
    """Return the texts and labels of lines."""
    return [line["text"] for line in lines], np.array([str(line["label"]) for line in lines])


def phrases_for(name: str, phrases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return labelled phrases; for sst2, drop neutral phrases (label 2) and merge the others into two classes."""
    if name == "sst1":
        return phrases
    return [line | {"label": int(line["label"] > 2)} for line in phrases if line["label"] != 2]


def folds(folder: Path, name: str, n_folds: int, *, phrases: bool) -> list[tuple[Any, Any, Any]]:
    """Return training, validation (or None) and test data for each fold."""
    lines = read_lines(folder / "sentclass" / f"{name}.jsonl.gz")
    if lines[0].get("split"):
        of = {split: [line for line in lines if line["split"] == split] for split in ("train", "dev", "test")}
        if phrases and name in ("sst1", "sst2"):
            of["train"] += phrases_for(name, read_lines(folder / "sentclass/sst1_phrases.jsonl.gz"))
        return [(columns(of["train"]), columns(of["dev"]) if of["dev"] else None, columns(of["test"]))]
    order = np.random.RandomState(0).permutation(len(lines))
    parts = np.array_split(order, 10)
    return [
        (
            columns([lines[i] for j, part in enumerate(parts) if j != held for i in part]),
            None,
            columns([lines[i] for i in parts[held]]),
        )
        for held in range(n_folds)
    ]


def main() -> None:
    """Print a line for each set and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=PAPER, default=list(PAPER))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["rand"])
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--phrases", action="store_true")
    parser.add_argument("--vectors", type=Path)
    arguments = parser.parse_args()
    vectors = SubwordVectors.load(arguments.vectors) if arguments.vectors else None
    for name in arguments.sets:
        for form in arguments.forms:
            start, found = perf_counter(), []
            for learned, validation, tested in folds(arguments.data, name, arguments.folds, phrases=arguments.phrases):
                of_words = None if form == "rand" else vectors
                options = {"n_epochs": arguments.epochs, "patience": arguments.patience}
                network = ConvolutionalKeys(form, of_words, lowercase=name not in CASED, **options)
                network.fit(*learned, validation)
                found.append(100.0 * np.mean(network.predict(tested[0]) == tested[1]))
            paper, seconds = PAPER[name][FORMS.index(form)], perf_counter() - start
            print(
                f"{name:5} {form:12} {np.mean(found):5.1f} on {len(found)} fold(s), paper {paper}, {seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
