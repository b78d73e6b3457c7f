"""The command line of the comparison."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from shared.labelled_sets import SETS

from .compare import Plan, measure_set
from .registry import PEERS, find_peer
from .results import Results, load_results, merge_earlier
from .tables import report
from .task import make_task
from .worker import CLOCKS

PROJECT_OF = {"faiss": "faiss-cpu", "cmt_numba": "cmt-numba", "sklearn": "scikit-learn"}
"""What packages are installed as, where that is not what they are imported as."""


def environment(n_threads: int, clock: str) -> dict[str, Any]:
    """Return what times depend on."""
    versions = {}
    for package in sorted({find_peer(name).package for name in PEERS}):
        try:
            versions[package] = importlib.metadata.version(PROJECT_OF.get(package, package))
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    settings = {"n_threads": n_threads, "clock": clock}
    return {"processor": _processor(), "python": platform.python_version(), **settings, "versions": versions}


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare memory trees with their peers.")
    parser.add_argument("--data", type=Path, help="folder of data, as shared/labelled_sets.py describes it")
    parser.add_argument("--sets", nargs="*", default=["synthetic, 100 shots"], help="names, or how they start")
    parser.add_argument(
        "--peers", nargs="*", default=list(PEERS), choices=list(PEERS), metavar="PEER", help=str(list(PEERS))
    )
    parser.add_argument("--runs", type=int, help="rounds, 5 by default; all times are medians over them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few settings, and by default one round of 1,000 queries")
    parser.add_argument("--no-stream", action="store_true", help="leave out inserting with queries in between")
    parser.add_argument("--most-queries", type=int, help="4,000 by default")
    parser.add_argument(
        "--query-limit", type=float, default=5.0, help="seconds a setting; slow peers get fewer queries"
    )
    parser.add_argument("--build-limit", type=float, default=60.0, help="seconds; slower builds are not repeated")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds after which a peer is given up")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="time that passes, or CPU time")
    parser.add_argument("--earlier", type=Path, help="results of an earlier run, for peers not measured now")
    parser.add_argument("--all-settings", action="store_true", help="print also settings that others of the peer beat")
    parser.add_argument("--out", type=Path, help="JSON file for all results")
    options = parser.parse_args(arguments)
    plan = Plan(
        options.peers,
        n_runs=options.runs or (1 if options.quick else 5),
        n_threads=options.threads,
        quick=options.quick,
        stream=not options.no_stream,
        query_limit=options.query_limit,
        build_limit=options.build_limit,
        patience=options.patience,
        clock=options.clock,
    )
    most_queries = options.most_queries or (1000 if options.quick else 4000)
    results = Results(environment(options.threads, options.clock))
    earlier = load_results(options.earlier) if options.earlier else Results({})
    for name in [name for name in SETS if name.startswith(tuple(options.sets))]:
        plan.say(name)
        task = make_task(*SETS[name](options.data), most_queries=most_queries)
        results.sets[name] = measure_set(task, plan)
        if name in earlier.sets:
            merge_earlier(results.sets[name], earlier.sets[name])
        print(report(name, results.sets[name], options.all_settings), end="\n\n", flush=True)
        if options.out:
            results.save(options.out)
