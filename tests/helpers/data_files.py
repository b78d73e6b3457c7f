"""Data files of all formats for tests."""

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import scipy.sparse
from sklearn.datasets import dump_svmlight_file


def some_rows(n: int = 57, n_features: int = 20, seed: int = 0) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, n_features)) * (rng.random((n, n_features)) < 0.3), 3).astype(np.float32)
    X[0, -1] = 0.5
    return scipy.sparse.csr_array(X), rng.integers(-3, 10, n)


def svmlight_text(X: Any, y: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    dump_svmlight_file(scipy.sparse.csr_matrix(X), y, file, **options)
    return file.getvalue()


def write_all(folder: Path) -> dict[str, Path]:
    """Write files of all formats, with one class or several labels for each row."""
    X, y = some_rows()
    Y = (np.random.default_rng(1).random((57, 6)) < 0.3).astype(np.int8)
    Y[0, -1] = 1
    lists = [",".join(map(str, np.flatnonzero(row))) for row in Y]
    features = [" ".join(f"{j}:{row[j]}" for j in np.flatnonzero(row)) for row in X.toarray()]
    named = [" ".join(f"w{j}:{row[j]}" for j in np.flatnonzero(row)) for row in X.toarray()]
    frame = pandas.DataFrame(X.toarray(), columns=[f"x{j}" for j in range(20)]).assign(label=y)
    contents: dict[str, Any] = {
        "one.svm": svmlight_text(X, y),
        "several.svm": "".join(f"{a} {b}\n" for a, b in zip(lists, features, strict=True)),
        "some.xc": "57 20 6\n" + "".join(f"{a} {b}\n" for a, b in zip(lists, features, strict=True)),
        "one.vw": "".join(f"{a} |n {b}\n" for a, b in zip(y, named, strict=True)),
        "several.vw": "".join(f"{a} |n {b}\n" for a, b in zip(lists, named, strict=True)),
        "one.csv": frame.to_csv(index=False),
        "several.csv": frame.assign(label=lists).to_csv(index=False),
        "one.jsonl": frame.to_json(orient="records", lines=True),
        "several.jsonl": frame.assign(label=[np.flatnonzero(row) for row in Y]).to_json(orient="records", lines=True),
        "one.tsv": frame.to_csv(index=False, sep="\t"),
    }
    paths = {}
    for name, content in contents.items():
        paths[name] = folder / name
        data = content if isinstance(content, bytes) else content.encode()
        paths[name].write_bytes(data)
        paths[name + ".gz"] = folder / (name + ".gz")
        paths[name + ".gz"].write_bytes(gzip.compress(data))
    for name, labels in (("one.parquet", y), ("several.parquet", [np.flatnonzero(row) for row in Y])):
        paths[name] = folder / name
        frame.assign(label=labels).to_parquet(paths[name])
    for name, named_arrays in (("one.npz", {"X": X.toarray(), "y": y}), ("several.npz", {"X": X.toarray(), "Y": Y})):
        paths[name] = folder / name
        np.savez(paths[name], **named_arrays)
    return paths
