"""Print a page that compares versions by their results of airspeed velocity, after ``asv run`` of their commits.

::

    python docs/_site/versions.py 0.1.0=7c35f35 0.2.0=bda558f3 0.3.0=main > docs/measurements/versions.md
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "asv_benchmarks" / ".asv" / "results"
INTRODUCTION = """# Versions

Results of airspeed velocity (`asv_benchmarks/benchmarks/`) on one machine. Seconds are CPU time where one thread does
the work. `track_` values are errors, recalls or fractions, as their names say. An empty cell means that the version
lacks what is measured. The last column is the last version relative to the one before. Times vary by about a fifth
between runs, so smaller differences mean little.
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


def in_unit(benchmark: str, value: float | None) -> str:
    """Return a result with its unit."""
    if value is None:
        return ""
    kind = benchmark.rsplit(".", 1)[-1].split("_")[0]
    if kind == "peakmem":
        return f"{value / 1e6:.0f} MB"
    if kind == "track":
        return f"{value:.4g}"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if value * factor >= 1.0:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def page(versions: dict[str, Figures]) -> str:
    """Return the page, with a table for each module of benchmarks."""
    lines = [INTRODUCTION]
    keys = sorted(set().union(*versions.values()))
    for module, some in itertools.groupby(keys, key=lambda key: key[0].split(".")[0]):
        header: list[Any] = ["benchmark", *versions, "ratio"]
        lines += [f"## {module}\n", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
        for key in some:
            values = [figures.get(key) for figures in versions.values()]
            cells = [in_unit(key[0], value) for value in values]
            before, after = values[-2:]
            cells.append(f"{after / before:.2f}" if before and after is not None else "")
            name = f"{key[0].split('.', 1)[1]} ({key[1]})" if key[1] else key[0].split(".", 1)[1]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    named = dict(version.split("=") for version in sys.argv[1:])
    if len(named) < 2:
        sys.exit("name at least two versions, such as 0.1.0=7c35f35 0.2.0=bda558f3")
    print(page({name: figures_of(commit) for name, commit in named.items()}), end="")
