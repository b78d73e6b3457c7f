"""The example of convolutional keys, small."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, load_script

pytest.importorskip("jax")

FOLDER = "examples/learned_keys"
TEXTS = ["a good film", "good , very good", "a bad film", "bad and so very bad"] * 12
Y = np.array(["+", "+", "-", "-"] * 12)
SMALL = {"n_components": 16, "n_maps": 8, "batch_size": 8, "n_epochs": 50, "patience": 50}


@pytest.fixture(scope="module")
def convolution() -> Any:
    sys.path.insert(0, str(ROOT / FOLDER))
    return load_script(f"{FOLDER}/convolution.py")


def test_a_network_learns_classes_and_makes_keys(convolution: Any):
    network = convolution.ConvolutionalKeys(**SMALL).fit(TEXTS, Y)
    assert np.mean(network.predict(TEXTS) == Y) == 1.0
    keys = network.transform(["good", "bad", "", "unheard"])
    assert keys.shape == (4, 24)
    assert keys.dtype == np.float32
    assert not np.allclose(keys[2], keys[3])  # words never seen have vectors too
    np.testing.assert_array_equal(network.transform(["so unheard", "unheard"])[1], keys[3])  # the same each time
    assert np.linalg.norm(network.layers_.outputs, axis=0).max() <= 3.0 + 1e-5
    again = convolution.ConvolutionalKeys(**SMALL).fit(TEXTS, Y)
    np.testing.assert_array_equal(again.transform(TEXTS), network.transform(TEXTS))


def test_words_and_their_endings(convolution: Any):
    assert convolution.words_of("It doesn't, he's done.") == ["it", "does", "n't", ",", "he", "'s", "done", "."]
    assert convolution.words_of("What 's", lowercase=False) == ["What", "'s"]


def test_maxima_are_those_of_a_convolution(convolution: Any):
    rng = np.random.default_rng(0)
    n_maps, vectors = 2, rng.normal(size=(6, 3)).astype(np.float32)
    filters = rng.normal(size=(3, 12 * n_maps)).astype(np.float32)
    biases = rng.normal(size=3 * n_maps).astype(np.float32)
    places = rng.integers(0, 6, (4, 7))
    found = convolution.maxima(convolution.Layers(filters, biases, None, None), vectors, places, n_maps)
    expected, first = np.zeros((4, 3 * n_maps)), 0
    for i, width in enumerate((3, 4, 5)):
        filters_of_width = filters[:, first : first + width * n_maps].reshape(3, width, n_maps)
        first += width * n_maps
        for text in range(4):
            values = [
                np.einsum("wd,dwm->m", vectors[places[text, start : start + width]], filters_of_width)
                for start in range(7 - width + 1)
            ]
            expected[text, i * n_maps : (i + 1) * n_maps] = (
                np.max(values, axis=0) + biases[i * n_maps : (i + 1) * n_maps]
            )
    np.testing.assert_allclose(found, np.maximum(expected, 0.0), rtol=1e-4, atol=1e-5)


def test_forms_that_begin_with_vectors(convolution: Any):
    from cmt_numba.text import SubwordVectors

    vectors = SubwordVectors(8, min_count=1, n_epochs=1, max_n=0, random_state=0).fit(TEXTS)
    small = {name: value for name, value in SMALL.items() if name != "n_components"}
    tables = {}
    for form in ("static", "non-static", "multichannel"):
        network = convolution.ConvolutionalKeys(form, vectors, **small | {"n_epochs": 2}).fit(TEXTS, Y)
        tables[form] = network.table_[network.places_["a"]]
        assert network.transform(["good", "unheard good"]).shape == (2, 24)
    first = convolution.ConvolutionalKeys("static", vectors)._first_vectors(["a"])
    np.testing.assert_array_equal(tables["static"], first[0])
    assert np.abs(tables["non-static"] - first[0]).max() > 0.0
    assert np.abs(tables["multichannel"] - first[0]).max() > 0.0
    for options in ({"form": "static"}, {"form": "rand", "vectors": vectors}, {"form": "deep"}):
        with pytest.raises(ValueError, match=r"vectors must be given|form must be one of"):
            convolution.ConvolutionalKeys(**options).fit(TEXTS, Y)


def test_scripts_run(convolution: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    (tmp_path / "sentclass").mkdir()
    lines = [{"text": text, "label": label, "split": None} for text, label in zip(TEXTS, Y.tolist(), strict=True)]
    with gzip.open(tmp_path / "sentclass/cr.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    sentences = load_script(f"{FOLDER}/sentences.py")
    learned, validation, tested = sentences.folds(tmp_path, "cr", 1, phrases=False)[0]
    assert len(learned[0]) == 43
    assert len(tested[0]) == 5
    assert validation is None
    monkeypatch.setattr(
        sentences, "ConvolutionalKeys", lambda form, vectors, **options: convolution.ConvolutionalKeys(**SMALL)
    )
    monkeypatch.setattr(sys, "argv", ["sentences.py", "--data", str(tmp_path), "--sets", "cr", "--folds", "1"])
    sentences.main()
    assert "100.0 on 1 fold(s), paper 79.8" in capsys.readouterr().out
