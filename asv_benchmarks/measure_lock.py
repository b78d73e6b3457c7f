"""Measure what the constants of the lock are worth: queries of a store from several threads beside one that changes it.

    python asv_benchmarks/measure_lock.py

Each constant of ``cmt_numba/_change/lock.py`` is halved and doubled. Clustered vectors; threads ask single
queries, another one replaces single vectors as fast as it can. Settings are measured in turns. Prints medians of the
rounds: queries and changes a second, and the longest query. Times are by the clock. Needs tabulate.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse

import numpy as np
from compare_store_threads import asked_and_changed
from store_data import K, clustered
from tabulate import tabulate

from cmt_numba import MemoryStore
from cmt_numba._change import lock as rwlock

CONSTANTS = {
    "_READERS_SHARE": "time of readers for each time of a change",
    "_SHORTEST_PAUSE": "least time of readers after a change",
    "_LONGEST_PAUSE": "most time of readers after a change",
    "_LONGEST_WORK": "of a change before it lets readers in",
    "_LONGEST_HOLD": "for which readers hold back",
    "_LOOK_AGAIN": "after which one that holds back looks whether it must",
    "_LEAST_PATIENCE": "with readers that go on",
    "_LONGEST_DRAIN": "for which readers hold back while others go on",
    "_PATIENT_FOR": "tries of a change before its patience grows",
    "_LOOK": "between looks at readers that go on",
}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure what the constants of the lock are worth.")
    parser.add_argument("--n", type=int, default=20_000, help="clustered vectors")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--threads", type=int, default=8, help="that ask")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each setting and round")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    data = clustered(given.n, given.features)
    others = clustered(given.n, given.features, seed=1).stored
    store = MemoryStore(random_state=0, n_threads=1)
    store.add(range(given.n), data.stored)

    def measured() -> list[float]:
        shown = asked_and_changed(
            lambda i: store.query(data.asked[i : i + 1], K),
            given.threads,
            lambda i: store.upsert(i % given.n, others[i % given.n : i % given.n + 1]),
            given.seconds,
        )
        return [shown[0], shown[3], shown[4]]

    settings = [("as they are", 1.0), *((name, factor) for name in CONSTANTS for factor in (0.5, 2.0))]
    found: dict[tuple[str, float], list[list[float]]] = {setting: [] for setting in settings}
    for _ in range(given.rounds):
        for name, factor in settings:
            before = getattr(rwlock, name, None)
            if before is not None:
                setattr(rwlock, name, before * factor)
            found[name, factor].append(measured())
            if before is not None:
                setattr(rwlock, name, before)
    medians = {setting: np.median(rounds, axis=0) for setting, rounds in found.items()}
    usual = medians.pop(("as they are", 1.0))
    rows = [["as they are", "", "", *usual]]
    for name, what in CONSTANTS.items():
        rows += [[name, what, factor, *medians[name, factor]] for factor in (0.5, 2.0)]
    headers = ["constant", "what it is", "times", "queries/s", "longest ms", "changes/s"]
    print(tabulate(rows, headers, tablefmt="github", floatfmt=("", "", "", ".0f", ".0f", ".0f")))


if __name__ == "__main__":
    main()
