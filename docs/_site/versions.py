"""Print a page that compares versions by their results of airspeed velocity, after ``asv run`` of their commits.

::

    python docs/_site/versions.py 0.2.0=bda558f3 0.3.0=main > docs/measurements/versions.md
"""

import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "asv_benchmarks" / ".asv" / "results"
INTRODUCTION = """# Versions

Results of airspeed velocity (`asv_benchmarks/benchmarks/`) of each version relative to the version before, on one
machine: the geometric mean over the parameters of a benchmark, and the range. Below 1, the later version is faster,
smaller or more accurate; for `recall` and `self_consistency`, above 1. Times vary by a fifth between runs. Cells are
empty if the earlier version cannot do what is measured, or had a result of 0.

"""

Figures = dict[tuple[str, str], float]


def figures_of(commit: str) -> Figures:
    """Return the results of a commit by benchmark and parameters."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", f"{commit}^{{commit}}"]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    figures: Figures = {}
    for path in RESULTS.glob(f"*/{name}-*.json"):
        stored = json.loads(path.read_text(encoding="utf-8"))
        for benchmark, cells in stored["results"].items():
            columns = dict(zip(stored["result_columns"], cells, strict=False))
            choices = itertools.product(*columns.get("params", []))
            for choice, value in zip(choices, columns["result"] or [], strict=False):
                if value is not None and value == value:  # not NaN, of a case that is left out
                    figures[benchmark, ", ".join(choice).replace("'", "")] = value
    if not figures:
        sys.exit(f"{RESULTS} has no results of {commit}: run 'asv run {commit}^!' in asv_benchmarks/")
    return figures


def ratios(before: Figures, after: Figures, benchmark: str) -> str:
    """Return the mean, the least and the largest ratio of two versions over the parameters of a benchmark."""
    keys = [key for key in before.keys() & after.keys() if key[0] == benchmark and min(before[key], after[key]) > 0.0]
    found = sorted(after[key] / before[key] for key in keys)
    if len(found) < 2:
        return "".join(f"{ratio:.2f}" for ratio in found)
    return f"{statistics.geometric_mean(found):.2f} ({found[0]:.2f}-{found[-1]:.2f})"


def page(versions: dict[str, Figures]) -> str:
    """Return the page, with a row for each benchmark."""
    header = ["benchmark", *(f"{after} / {before}" for before, after in itertools.pairwise(versions))]
    lines = [f"{INTRODUCTION}| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for benchmark in sorted({key[0] for figures in versions.values() for key in figures}):
        cells = [ratios(before, after, benchmark) for before, after in itertools.pairwise(versions.values())]
        lines.append(f"| {benchmark} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    named = dict(version.split("=") for version in sys.argv[1:])
    if len(named) < 2:
        sys.exit("name at least two versions, such as 0.1.0=7c35f35 0.2.0=bda558f3")
    print(page({name: figures_of(commit) for name, commit in named.items()}), end="")
