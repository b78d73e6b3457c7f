"""Download the paper's own sets, as far as they are openly hosted, into the folder of data.

    python examples/paper/public_data.py aloi wiki10-31k --data path/to/folder

``aloi``
    ALOI (section 4.1, 4.2 and 4.5), 108,000 views of 1,000 objects, from the LIBSVM pages, features scaled. With it:
    ``few_shot.py --sets "aloi, 98 shots"``, ``progressive.py --sets "aloi, 98 shots"``. The set has 108 views of an
    object, of which ten are asked for.
``rcv1``
    RCV1 (section 4.3) by scikit-learn's ``fetch_rcv1``: 103 topics, not the 1,000 labels that the paper made of them.
``eurlex``, ``wiki10-31k``, ``amazoncat-13k``
    Wiki10-31K and AmazonCat-13K (section 4.3), and the smaller EUR-Lex, as tf-idf words from the LIBSVM pages: the
    texts of the Extreme Classification Repository, with features a little unlike those that the paper used.
    With them: ``multilabel.py --sets wiki10-31k``.

The Extreme Classification Repository keeps its own files where no script can get at them. Unpack one by hand as
``folder/eurlex/{train,test}.txt`` (or another of the three names) and it is read instead.

WikiPara and the features that the paper made of ImageNet, of Pascal and of MS COCO are hosted nowhere that we know of;
``stand_ins.py`` says what takes their place. A file that was downloaded before is not downloaded again, and one that
was put into its place by hand is as good.
"""

import argparse
import bz2
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import scipy.sparse
from sklearn.datasets import fetch_rcv1, load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer, normalize

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
ALOI = "multiclass/aloi.scale.bz2"
MULTILABEL = {
    "rcv1": ("", ""),
    "eurlex": ("multilabel/eurlex_tfidf_train.svm.bz2", "multilabel/eurlex_tfidf_test.svm.bz2"),
    "wiki10-31k": ("multilabel/wiki10_31k_tfidf_train.svm.bz2", "multilabel/wiki10_31k_tfidf_test.svm.bz2"),
    "amazoncat-13k": (
        "multilabel/AmazonCat-13K_tfidf_train_ver1.svm.bz2",
        "multilabel/AmazonCat-13K_tfidf_test_ver1.svm.bz2",
    ),
}
"""The multi-label sets by name, with where the two parts lie below ``LIBSVM``; RCV1 is scikit-learn's."""


def download(url: str, folder: Path) -> Path:
    """Return where the file of this address is in ``folder``, after downloading it if it was not there.

    Raises
    ------
    OSError
        If it cannot be downloaded, with where to put it by hand.
    """
    name = url.rsplit("/", 1)[-1]
    pooch.get_logger().setLevel(logging.WARNING)  # its advice on checksums is for those who publish data
    try:
        return Path(pooch.retrieve(url, known_hash=None, fname=name, path=folder, progressbar=True))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise OSError(f"cannot download {url} ({error}); put the file into {folder} by hand") from error


def aloi(folder: Path, base: str = LIBSVM) -> tuple[np.ndarray, np.ndarray]:
    """Return ALOI's features, dense and of unit length, and its classes, downloading it to ``folder/aloi`` first.

    Raises
    ------
    OSError
        If it cannot be downloaded.
    ValueError
        If the file is not what it should be.
    """
    path = download(f"{base}/{ALOI}", folder / "aloi")
    X, y = _load(path, multilabel=False)
    return normalize(X.toarray().astype(np.float32)), y.astype(np.int64)


def multilabel(folder: Path, name: str, base: str = LIBSVM) -> tuple[Any, Any, Any, Any]:
    """Return features and labels to learn from, and features and labels to test on, all of them sparse.

    Parameters
    ----------
    folder : Path
        Folder of data; the set is in the folder ``name`` there, and downloaded if it is not.
    name : str
        One of ``MULTILABEL``.
    base : str, optional
        Where the addresses in ``MULTILABEL`` begin.

    Raises
    ------
    OSError
        If it cannot be downloaded.
    ValueError
        If a file is not what it should be.
    """
    if name == "rcv1":
        return _rcv1(folder / name)
    by_hand = [folder / name / f"{part}.txt" for part in ("train", "test")]
    if all(path.exists() for path in by_hand):
        parts = [_load(path, multilabel=True, header=True) for path in by_hand]
    else:
        parts = [_load(download(f"{base}/{path}", folder / name), multilabel=True) for path in MULTILABEL[name]]
    width = max(X.shape[1] for X, _ in parts)
    numbers = {
        label: i for i, label in enumerate(sorted({label for _, lists in parts for one in lists for label in one}))
    }
    binarizer = MultiLabelBinarizer(classes=list(numbers), sparse_output=True)
    matrices = []
    for X, lists in parts:
        X.resize((X.shape[0], width))
        matrices += [normalize(X.astype(np.float32)), scipy.sparse.csr_array(binarizer.fit_transform(lists))]
    return matrices[0], matrices[1], matrices[2], matrices[3]


def _rcv1(folder: Path) -> tuple[Any, Any, Any, Any]:
    parts = [fetch_rcv1(data_home=folder, subset=subset) for subset in ("train", "test")]
    matrices = [scipy.sparse.csr_array(part[name]) for part in parts for name in ("data", "target")]
    return matrices[0], matrices[1], matrices[2], matrices[3]


def _load(path: Path, *, multilabel: bool, header: bool = False) -> tuple[Any, Any]:
    """Return the rows of a file in svmlight's format, after a line with its sizes if it has a header."""
    opened = bz2.open if path.suffix == ".bz2" else open
    try:
        with opened(path, "rb") as file:
            sizes = file.readline().split() if header else []
            n_features = int(sizes[1]) if header else None
            X, y = load_svmlight_file(
                file, n_features=n_features, multilabel=multilabel, zero_based=header or "auto", dtype=np.float32
            )
    except (OSError, ValueError, IndexError, EOFError) as error:
        raise ValueError(f"{path} is broken ({error}); delete it to download it again") from error
    if header and X.shape[0] != int(sizes[0]):
        raise ValueError(f"{path} has {X.shape[0]} rows, but its first line promises {int(sizes[0])}")
    return scipy.sparse.csr_array(X), y


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Download the paper's own sets.")
    parser.add_argument("names", nargs="+", choices=["aloi", *MULTILABEL])
    parser.add_argument("--data", type=Path, required=True, help="folder of data")
    parser.add_argument("--base", default=LIBSVM, help="another URL of the LIBSVM data sets")
    options = parser.parse_args(arguments)
    for name in options.names:
        try:
            if name == "aloi":
                X, y = aloi(options.data, options.base)
                print(f"{name}: {X.shape[0]} examples of {np.unique(y).size} classes, {X.shape[1]} features")
            else:
                X, Y, queries, _ = multilabel(options.data, name, options.base)
                sizes = f"{X.shape[0]} and {queries.shape[0]} examples of {Y.shape[1]} labels"
                print(f"{name}: {sizes}, {X.shape[1]} features")
        except (OSError, ValueError) as error:
            parser.error(str(error))


if __name__ == "__main__":
    main()
