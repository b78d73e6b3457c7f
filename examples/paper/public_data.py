"""Download the paper's public data sets to the data folder.

    python examples/paper/public_data.py aloi wiki10-31k --data path/to/folder

``aloi``
    ALOI (sections 4.1, 4.2 and 4.5): 108,000 views of 1,000 objects with scaled features, from the LIBSVM pages. Ten
    views of each object are queries. Use ``few_shot.py --sets "aloi, 98 shots"`` and ``progressive.py --sets "aloi, 98
    shots"``.
``rcv1``
    RCV1 (section 4.3) from scikit-learn's ``fetch_rcv1``, with 103 topics instead of the paper's 1,000 labels.
``eurlex``, ``wiki10-31k``, ``amazoncat-13k``
    Wiki10-31K and AmazonCat-13K (section 4.3), and the smaller EUR-Lex, as tf-idf vectors from the LIBSVM pages. The
    texts are those of the Extreme Classification Repository; the features differ slightly from the paper's. Use
    ``multilabel.py --sets wiki10-31k``.

Scripts cannot download the original files of the Extreme Classification Repository. If you unpack one as
``folder/eurlex/{train,test}.txt`` (or with another of the three names), it is read instead.

WikiPara and the paper's features of ImageNet, Pascal and MS COCO are not public; ``stand_ins.py`` lists the
substitutes. Existing files are not downloaded again.
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
"""Paths of the training and test files below ``LIBSVM`` for each multi-label set; RCV1 comes from scikit-learn."""


def download(url: str, folder: Path) -> Path:
    """Return the path of a file in ``folder``, and download it first if it is missing.

    Raises
    ------
    OSError
        If the download fails; the message names the folder for a manual download.
    """
    name = url.rsplit("/", 1)[-1]
    pooch.get_logger().setLevel(logging.WARNING)  # hide its advice on checksums, which is for publishers of data
    try:
        return Path(pooch.retrieve(url, known_hash=None, fname=name, path=folder, progressbar=True))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise OSError(f"cannot download {url} ({error}); put the file into {folder} by hand") from error


def aloi(folder: Path, base: str = LIBSVM) -> tuple[np.ndarray, np.ndarray]:
    """Return the dense, unit-length features and the classes of ALOI; download it to ``folder/aloi`` if needed.

    Raises
    ------
    OSError
        If the download fails.
    ValueError
        If the file has unexpected contents.
    """
    path = download(f"{base}/{ALOI}", folder / "aloi")
    X, y = _load(path, multilabel=False)
    return normalize(X.toarray().astype(np.float32)), y.astype(np.int64)


def multilabel(folder: Path, name: str, base: str = LIBSVM) -> tuple[Any, Any, Any, Any]:
    """Return training features and labels, and test features and labels, as sparse matrices.

    Parameters
    ----------
    folder : Path
        Data folder. The set is downloaded to its subfolder ``name`` if it is missing.
    name : str
        One of ``MULTILABEL``.
    base : str, optional
        Base URL of the paths in ``MULTILABEL``.

    Raises
    ------
    OSError
        If the download fails.
    ValueError
        If a file has unexpected contents.
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
    """Return the rows of an svmlight file, which may begin with a header line of sizes."""
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
