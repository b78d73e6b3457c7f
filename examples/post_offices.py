r"""Find the nearest post offices on the globe, and plot the cells of the landmarks.

The package zipcodes contains the locations of all ZIP codes of the United States. This script stores thirty thousand
with mail delivery and prints those nearest to a location::

    python examples/post_offices.py --near 40.71 -74.01 --plot map.png

The map shows the cells of the landmarks. ::

    python examples/post_offices.py --evaluate

finds the ten offices nearest to places with post office boxes. It compares :class:`LandmarkIndex` with several
target recalls, :class:`VPTree`, and scikit-learn's KDTree and BallTree, and prints recall, CPU time on one thread and,
for trees, the number of distances per query. For scikit-learn's trees it includes distances to balls and boxes.

Longitude and latitude become points on a sphere of radius 1. Two points at Euclidean distance ``d`` are ``2 * 6371 *
arcsin(d / 2)`` km apart on the globe, so both distances give the same order, also across the date line. Needs zipcodes
and tabulate, and matplotlib for the map.
"""

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from sklearn.neighbors import BallTree, KDTree
from tabulate import tabulate
from threadpoolctl import threadpool_limits

from cmt_numba.neighbors import LandmarkIndex
from cmt_numba.sequences import VPTree

EARTH = 6371.0  # km
WANTED = 10
TARGETS = (0.5, 0.95, 0.99, 1.0)
Answer = tuple[np.ndarray, np.ndarray | None]  # positions (n, k); number of distances per query, or None


class Offices(NamedTuple):
    """Post offices."""

    names: list[str]
    places: np.ndarray  # float64 (n, 2): latitude and longitude in degrees


def all_offices(kind: str) -> Offices:
    """Return the offices of a kind, one per location."""
    if find_spec("zipcodes") is None:
        raise SystemExit("install zipcodes, which contains the post offices: pip install 'cmt-numba[examples]'")
    import zipcodes

    found = {}
    for code in zipcodes.list_all():
        if code["zip_code_type"] == kind and code["lat"] and code["long"]:
            name = f"{code['zip_code']} {code['city']}, {code['state']}"
            found.setdefault((float(code["lat"]), float(code["long"])), name)
    return Offices(list(found.values()), np.array(list(found)))


def on_sphere(places: np.ndarray) -> np.ndarray:
    """Convert latitudes and longitudes to points on the unit sphere: float64, shape (n, 3)."""
    latitude, longitude = np.radians(places).T
    return np.column_stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )


def kilometres(lengths: np.ndarray) -> np.ndarray:
    """Convert Euclidean distances between points on the unit sphere to kilometres on the globe."""
    return np.asarray(2.0 * EARTH * np.arcsin(np.minimum(lengths / 2.0, 1.0)))


def engines(places: np.ndarray) -> dict[str, tuple[float, Callable[[np.ndarray], Answer]]]:
    """Return by name the seconds to build each engine, and its search function."""
    points, found = on_sphere(places), {}
    began = process_time()
    index = LandmarkIndex("euclidean", random_state=0)
    index.insert(points)
    built = process_time() - began

    def with_target(target: float) -> Callable[[np.ndarray], Answer]:
        def search(asked: np.ndarray) -> Answer:
            index.target_recall = target
            return index.query(on_sphere(asked), WANTED).ids, None

        return search

    for target in TARGETS:
        found[f"LandmarkIndex, target {target}"] = built, with_target(target)
    began = process_time()
    tree = VPTree("euclidean", random_state=0)
    tree.insert(points)

    def by_distance(asked: np.ndarray) -> Answer:
        answer = tree.query(on_sphere(asked), WANTED)
        return answer.ids, answer.n_computed

    found["VPTree"] = process_time() - began, by_distance
    rivals: tuple[tuple[str, Any, Callable[[np.ndarray], np.ndarray], dict[str, str]], ...] = (
        ("KDTree", KDTree, on_sphere, {}),
        ("BallTree", BallTree, on_sphere, {}),
        ("BallTree, haversine", BallTree, np.radians, {"metric": "haversine"}),
    )
    for name, kind, rows_of, options in rivals:
        began = process_time()
        theirs = kind(rows_of(places), **options)

        def ask(asked: np.ndarray, theirs: Any = theirs, rows_of: Any = rows_of) -> Answer:
            theirs.reset_n_calls()
            positions = theirs.query(rows_of(asked), WANTED, return_distance=False)
            return positions, np.full(len(asked), theirs.get_n_calls() / len(asked))

        found[name] = process_time() - began, ask
    return found


def evaluate(offices: Offices, asked: np.ndarray, rounds: int) -> list[tuple[Any, ...]]:
    """Return table rows: engine, recall, microseconds and distances per query, and seconds to build."""
    points, at = on_sphere(offices.places), on_sphere(asked)
    exact = np.sort(1.0 - at @ points.T, axis=1)[:, :WANTED]
    searches, rows = engines(offices.places), []
    for _, search in searches.values():
        search(asked[:2])  # compiles
    times: dict[str, list[float]] = {name: [] for name in searches}
    answers = {}
    for _ in range(rounds):  # in turns
        for name, (_, search) in searches.items():
            began = process_time()
            answers[name] = search(asked)
            times[name].append(1e6 * (process_time() - began) / len(asked))
    farthest = kilometres(np.sqrt(2.0 * np.maximum(exact[:, -1], 0.0)))
    for name, (positions, computed) in answers.items():
        there = positions >= 0
        lengths = np.linalg.norm(at[:, None] - points[positions], axis=2)
        right = there & (kilometres(lengths) <= farthest[:, None] + 0.01)  # 10 m allow for float32 rounding
        rows.append(
            (
                name,
                right.mean(),
                np.median(times[name]),
                None if computed is None else np.mean(computed),
                searches[name][0],
            )
        )
    return rows


def plot(offices: Offices, index: LandmarkIndex, place: np.ndarray, path: Path) -> None:
    """Plot the offices of the mainland, the landmark cells, and a location."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    west, east, south, north = -125.0, -66.5, 24.3, 49.6
    grid = np.stack(np.meshgrid(np.linspace(north, south, 700), np.linspace(west, east, 1400), indexing="ij"), axis=-1)
    landmarks = index.landmarks_
    halves = 0.5 * (landmarks**2).sum(axis=1)
    cells = (on_sphere(grid.reshape(-1, 2)) @ landmarks.T - halves).argmax(axis=1).reshape(grid.shape[:2])
    figure, axes = plt.subplots(figsize=(11, 6.2), layout="constrained")
    edges = (cells != np.roll(cells, 1, axis=0)) | (cells != np.roll(cells, 1, axis=1))
    colours = ListedColormap(["white", "#9bb7d4"])
    axes.imshow(edges, cmap=colours, vmin=0, vmax=1, extent=(west, east, south, north), aspect=1.3)
    axes.plot(offices.places[:, 1], offices.places[:, 0], ",", color="0.35")
    axes.plot(place[1], place[0], "*", color="C3", markersize=12)
    axes.set(xlim=(west, east), ylim=(south, north), xlabel="longitude", ylabel="latitude")
    axes.set_title(f"{len(offices.names):,} post offices in {index.n_lists_} cells")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Find the nearest post offices.")
    parser.add_argument("--near", type=float, nargs=2, default=(40.71, -74.01), metavar=("LATITUDE", "LONGITUDE"))
    parser.add_argument("--plot", type=Path, help="file for the map")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3, help="number of runs; median times are printed")
    options = parser.parse_args()
    print("Storing the post offices of the United States, and finding those near a place", flush=True)
    offices = all_offices("STANDARD")
    print(f"{len(offices.names)} post offices", flush=True)
    if options.evaluate:
        boxes = all_offices("PO BOX").places
        asked = boxes[np.random.default_rng(0).permutation(len(boxes))[: options.queries]]
        head = ("engine", f"recall of {WANTED}", "us/query", "distances", "s to build")
        with threadpool_limits(1):
            rows = evaluate(offices, asked, options.rounds)
        print(tabulate(rows, head, floatfmt=("", ".4f", ".1f", ".0f", ".2f")))
        return
    index, place = LandmarkIndex("euclidean", random_state=0), np.array(options.near)
    index.insert(on_sphere(offices.places))
    found = index.query(on_sphere(place[None]), 5)
    for office, length in zip(found.ids[0], kilometres(found.values[0]), strict=True):
        print(f"{length:8.1f} km  {offices.names[office]}")
    if options.plot:
        plot(offices, index, place, options.plot)


if __name__ == "__main__":
    main()
