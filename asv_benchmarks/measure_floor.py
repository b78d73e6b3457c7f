"""Measure how close queries come to the machine: their time against that of a bare loop over the same memory.

::

    python asv_benchmarks/measure_floor.py
    python asv_benchmarks/measure_floor.py --keys text --sizes 1e4 1e5 --trees 1 --probes 1 16

The bare loop reads the same weights of routers and the same keys and takes the same dot products, and does nothing
else; ``benchmarks/floor.py`` has it. One thread, on which a million texts in eight trees take ten minutes to insert.
Needs tabulate.
"""

import argparse
import itertools

import numpy as np
from benchmarks.floor import compare, count_lines, list_reads
from benchmarks.keys import make_data
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree
from cmt_numba._validation import check_rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure queries against a bare loop over the same memory.")
    parser.add_argument("--keys", nargs="+", default=["dense 64", "dense 128", "text"], help="forms, and features")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--trees", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--probes", type=int, nargs="+", default=[1], help="leaves of each tree")
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=7, help="number of interleaved runs; times are medians")
    options = parser.parse_args()

    table = []
    for keys, size, n_trees in itertools.product(options.keys, options.sizes, options.trees):
        form, _, n_features = keys.partition(" ")
        data = make_data(form, int(size), options.queries, int(n_features or 0))
        tree = ContextualMemoryTree(n_trees, n_threads=1, random_state=0)
        tree.insert(data.keys)
        rows = check_rows(data.queries, sparse=form == "text")
        for layout in ("as inserted", "compact"):
            if layout == "compact":
                tree.compact()
            for n_leaves in options.probes:
                n_probes = n_trees * n_leaves
                visit = count_lines(tree._forest.state, rows, list_reads(tree._forest.state, rows, n_probes))
                times = compare(tree, data.queries, n_probes, options.repeats)
                to_codes = f"{times.query / times.codes:.2f}" if np.isfinite(times.codes) else ""
                row = [f"{value:.0f}" for value in visit] + [f"{value:.2f}" for value in (times.query, times.floor)]
                row += [f"{times.query / times.floor:.2f}", to_codes]
                table.append([keys, f"{int(size):,}", layout, n_trees, n_leaves, *row])
                print(*table[-1], flush=True)
        del tree
    headers = [
        "keys",
        "memories",
        "layout",
        "trees",
        "leaves of\neach tree",
        "routers\nmet",
        "keys\nscored",
        "lines of\nrouters",
        "all cache\nlines",
    ]
    headers += ["query,\nus", "bare loop,\nus", "query to\nbare loop", "query to loop\nover codes"]
    print(tabulate(table, headers, disable_numparse=True))


if __name__ == "__main__":
    main()
