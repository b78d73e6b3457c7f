"""Class sums stay exact as texts and classes are added and removed."""

import numpy as np
import pytest

from cmt_numba.text import TextClassifier

SHORT = ["red fox", "blue whale", "red planet far away", "the blue planet", "green and blue", "a fox and a whale"]
TOPICS = ["animal", "animal", "planet", "planet", "colour", "animal"]


def expected_sums(model):
    """Return the sum of the stored weights for each label and feature."""
    stored, expected = model.stored, {}
    for i, label in enumerate(stored.labels):
        for at in range(stored.hashed.starts[i], stored.hashed.starts[i + 1]):
            if model.sums.stored[at] != 0.0:
                key = int(stored.hashed.columns[at]), int(label)
                expected[key] = expected.get(key, 0.0) + float(model.sums.stored[at])
    return expected


def assert_sums_are_exact(classifier):
    model = classifier._model
    columns, labels, sums, _ = model.sums.entries()
    found = {(int(c), int(label)): float(value) for c, label, value in zip(columns, labels, sums, strict=True)}
    expected = expected_sums(model)
    assert found.keys() >= expected.keys()
    for key, value in found.items():
        assert value == pytest.approx(expected.get(key, 0.0), abs=1e-4)
    squares = np.bincount(labels, sums.astype(np.float64) ** 2, model.names.size)
    np.testing.assert_allclose(model.sums.totals.squares, squares, rtol=1e-3)
    np.testing.assert_array_equal(model.sums.totals.counts, np.bincount(model.stored.labels))


def test_sums_are_those_of_the_stored_texts_after_every_change():
    classifier = TextClassifier(random_state=0).fit(SHORT * 4, TOPICS * 4)
    assert_sums_are_exact(classifier)
    for i in range(40):
        classifier.partial_fit([f"sound number {i} of a loud song"], ["music" if i % 2 else "animal"])
    assert_sums_are_exact(classifier)
    classifier.remove([1, 25, 30])
    assert_sums_are_exact(classifier)
    classifier.remove_classes(["colour"])
    assert_sums_are_exact(classifier)


def test_many_classes_are_learned_from_one_text_each():
    words = [f"{first}{second}" for first in "bcdfghjklmnpqrstvwxz" for second in ("amo", "elu", "iro", "ony", "una")]
    texts = [f"{one} {other}" for i, one in enumerate(words) for other in words[i + 1 : i + 7]]
    classifier = TextClassifier(random_state=0).fit(texts, np.arange(len(texts)))
    assert classifier.classes_.size > 500  # the limit for learned vectors
    assert np.mean(classifier.predict(texts) == np.arange(len(texts))) > 0.95
    classifier.partial_fit(["zebra crossing"], [len(texts)])
    assert classifier.predict(["crossing zebras"]).tolist() == [len(texts)]


def texts_of_overlapping_classes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``n`` texts of each of 12 classes that use the same 200 words with different probabilities."""
    words = np.array([f"{a}{b}{c}" for a in "bdfgkl" for b in "aeiou" for c in "mnprstz"])[:200]
    chances = 0.4 * np.random.default_rng(7).dirichlet(np.full(200, 0.3), 12) + 0.6 / 200
    rng, labels = np.random.default_rng(seed), np.repeat(np.arange(12), n)
    return np.array([" ".join(rng.choice(words, 12, p=chances[label])) for label in labels], object), labels


def test_classes_that_are_added_later_do_not_take_texts_from_the_others():
    (texts, labels), (asked, right) = texts_of_overlapping_classes(15, 1), texts_of_overlapping_classes(40, 100)
    early, asked, right = labels < 9, asked[right < 9], right[right < 9]
    live = TextClassifier(random_state=0).fit(texts[early], labels[early])
    for i in np.random.default_rng(0).permutation(np.flatnonzero(~early)):
        live.partial_fit([texts[i]], labels[i : i + 1])
    together = TextClassifier(random_state=0).fit(texts, labels)
    errors = [np.mean(classifier.predict(asked) != right) for classifier in (live, together)]
    assert errors[0] < errors[1] + 0.01
