"""Evaluate learned keys on new classes with five examples each.

    python examples/learned_keys/new_classes.py --data path/to/folder

Expects ``clinc150/{train,test}.jsonl.gz`` with a line ``{"text": ..., "label": ...}`` for each request. Vectorizers are
trained on a random hundred of the 150 intents. A ``CMTClassifier`` learns five examples for each of the other fifty
intents, and is tested on their test texts. The script prints the error for each type of key. Needs the extra ``jax``.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from convolution import FORMS, ConvolutionalKeys
from sentences import columns, read_lines
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from cmt_numba import CMTClassifier
from cmt_numba.text import FastTextClassifier, SubwordVectors

N_TRAINING, N_SHOTS = 100, 5


def split(folder: Path, seed: int) -> tuple[Any, Any, Any]:
    """Return the training texts of the known classes, and a few examples and the test texts of the new classes."""
    (texts, y), (queries, answers) = (
        columns(read_lines(folder / "clinc150" / f"{part}.jsonl.gz")) for part in ("train", "test")
    )
    rng = np.random.RandomState(seed)
    classes = rng.permutation(np.unique(y))
    known = np.isin(y, classes[:N_TRAINING])
    few = [i for label in classes[N_TRAINING:] for i in rng.permutation(np.flatnonzero(y == label))[:N_SHOTS]]
    asked = np.flatnonzero(~np.isin(answers, classes[:N_TRAINING]))
    return (
        ([texts[i] for i in np.flatnonzero(known)], y[known]),
        ([texts[i] for i in few], y[few]),
        ([queries[i] for i in asked], answers[asked]),
    )


def error(keys: Any, few: Any, asked: Any) -> float:
    """Return the test error of a classifier trained on a few examples."""
    memory = CMTClassifier(random_state=0).fit(normalize(keys.transform(few[0])), few[1])
    return float(np.mean(memory.predict(normalize(keys.transform(asked[0]))) != asked[1]))


def join(words: Any, dense: Any, weight: float) -> FeatureUnion:
    """Return a vectorizer whose cosines are the weighted means of the cosines of two fitted vectorizers."""
    weights = {"words": (1.0 - weight) ** 0.5, "dense": weight**0.5}
    parts = [("words", words), ("dense", make_pipeline(dense, Normalizer().fit(np.zeros((1, 1)))))]
    return FeatureUnion(parts, transformer_weights=weights)


def main() -> None:
    """Print the error for each type of key and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, help="file written by SubwordVectors.save, for forms that need vectors")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=["rand"])
    parser.add_argument("--epochs", type=int, default=25)
    arguments = parser.parse_args()
    vectors = SubwordVectors.load(arguments.vectors) if arguments.vectors else None
    for seed in range(arguments.seeds):
        known, few, asked = split(arguments.data, seed)
        words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit([*known[0], *few[0]])
        linear = FastTextClassifier(random_state=seed).fit(*known)
        keys: dict[str, Any] = {"tf-idf words": words, "FastTextClassifier": linear}
        keys["tf-idf and FastTextClassifier"] = join(words, linear, 0.5)
        if vectors is not None:
            keys["SubwordVectors"] = vectors
        for form in arguments.forms:
            of_words = None if form == "rand" else vectors
            network = ConvolutionalKeys(form, of_words, n_epochs=arguments.epochs, random_state=seed).fit(*known)
            keys[f"network, {form}"] = network
            for weight in (0.3, 0.5):
                keys[f"tf-idf and network, {form}, {weight}"] = join(words, network, weight)
        for name, each in keys.items():
            print(f"seed {seed}, {name}: {error(each, few, asked):.3f}", flush=True)


if __name__ == "__main__":
    main()
