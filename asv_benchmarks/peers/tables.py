"""What a comparison has measured, as tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tabulate import tabulate

from .contract import described
from .curves import Dot, compare, error_dots, fastest_within, frontier, recall_dots, single_dots, verdict
from .results import Entrant, SetResult, median
from .vowpal import SHARED_OPTIONS

SPARSE_SLACK = 0.02
"""On sparse rows, how much more than exact search may err what is said to do as well."""

VIEWS: dict[str, Callable[[list[Entrant]], list[Dot]]] = {
    "error against time": error_dots,
    "error against time, row by row": single_dots,
    "1 - recall@1 against time": lambda entrants: recall_dots(entrants, 1),
    "1 - recall@10 against time": lambda entrants: recall_dots(entrants, 10),
}


def by_peer(result: SetResult) -> dict[str, list[Entrant]]:
    """Return the entrants of each peer."""
    peers: dict[str, list[Entrant]] = {}
    for entrant in result.entrants:
        peers.setdefault(entrant.peer, []).append(entrant)
    return peers


def builds_table(result: SetResult) -> str:
    """Return what building takes: medians, and how many times our fastest build's time it is."""
    ours = [median(entrant.seconds) for entrant in result.entrants if entrant.ours and entrant.seconds]
    rows = [
        [
            entrant.peer,
            described(entrant.build),
            median(entrant.seconds),
            median(entrant.seconds) / min(ours) if ours else None,
            median(entrant.n_cpus),
            median(entrant.peak_mb),
            median(entrant.kept_mb),
            len(entrant.seconds),
            entrant.problem or "",
        ]
        for entrant in result.entrants
    ]
    headers = ["peer", "build", "s", "to our fastest", "CPUs", "peak MB", "kept MB", "runs", "given up"]
    return tabulate(rows, headers, floatfmt=("", "", ".3f", ".2f", ".2f", ".1f", ".1f", "", ""))


def points_table(result: SetResult, everything: bool = False) -> str:
    """Return settings with their errors, recalls and times; without ``everything`` those no other of the peer beats."""
    rows: list[list[Any]] = []
    for entrants in by_peer(result).values():
        best = {dot.name for view in VIEWS.values() for dot in frontier(view(entrants))}
        rows += [row for entrant in entrants for row, name in _point_rows(entrant) if everything or name in best]
    headers = ["peer", "build", "setting", "error", "us", "single us", "recall@1", "us", "recall@10", "us", "queries"]
    floats = ("", "", "", ".4f", ".2f", ".1f", ".4f", ".2f", ".4f", ".2f", "")
    return tabulate(rows, headers, floatfmt=floats)


def _point_rows(entrant: Entrant) -> Iterator[tuple[list[Any], str]]:
    for point in entrant.points:
        if not point.us:
            continue
        recalls = [value for k in ("1", "10") for value in (point.recall.get(k), _median_or_none(point.us_at.get(k)))]
        costs = [median(point.error), median(point.us), median(point.single_us)]
        start = [entrant.peer, described(entrant.build), described(point.setting)]
        words = " ".join(f"{name}={value}" for name, value in point.setting.items())
        yield [*start, *costs, *recalls, point.n_queries], f"{entrant.name} {words}".strip()


def _median_or_none(values: list[float] | None) -> float | None:
    return median(values) if values else None


def verdicts(result: SetResult) -> str:
    """Return, for each other peer and each curve, whether we are behind anywhere."""
    ours = [entrant for entrant in result.entrants if entrant.ours]
    lines = []
    for title, view in VIEWS.items():
        if not (our_dots := view(ours)):
            continue
        lines.append(f"{title}:")
        for peer, entrants in by_peer(result).items():
            if not entrants[0].ours and (dots := view(entrants)):
                lines.append(f"  {peer}: {verdict(compare(our_dots, dots))}")
    return "\n".join(lines)


def exact_table(result: SetResult) -> str:
    """Return when we reach the error of exact search, as a share of the time that exact search takes."""
    slack = SPARSE_SLACK if result.shape["sparse"] else 0.0
    our_dots = error_dots(entrant for entrant in result.entrants if entrant.ours)
    rows = []
    for peer, entrants in by_peer(result).items():
        dots = error_dots(entrants) if entrants[0].exact else []
        if dots:
            exact = min(dots, key=lambda dot: dot.us)
            ours = fastest_within(our_dots, exact.missed + slack)
            rows.append(
                [peer, exact.missed, exact.us, *([ours.missed, ours.us, ours.us / exact.us, ours.name] if ours else [])]
            )
    headers = ["exact search", "error", "us", "our error", "our us", "share of its time", "our setting"]
    return tabulate(rows, headers, floatfmt=("", ".4f", ".1f", ".4f", ".1f", ".4f", ""))


def equal_settings_table(result: SetResult) -> str:
    """Return Vowpal Wabbit's memory trees beside ours of equal settings, and how many times ours do better."""
    ours = [entrant for entrant in result.entrants if entrant.peer == "paper tree" and _was_asked(entrant)]
    rows = []
    for theirs in result.entrants:
        if theirs.peer != "VW CMT" or not _was_asked(theirs):
            continue
        for entrant in ours:
            if all(entrant.build[name] == theirs.build[name] for name in SHARED_OPTIONS):
                rows.append([described(theirs.build), entrant.build["later"], *_side_by_side(theirs, entrant)])
        classifiers = [
            entrant for entrant in result.entrants if entrant.peer == "CMTClassifier" and _was_asked(entrant)
        ]
        as_good = [entrant for entrant in classifiers if _error(entrant) <= _error(theirs)]
        if as_good:
            fastest = min(as_good, key=lambda entrant: median(entrant.seconds))
            rows.append([described(theirs.build), fastest.name, *_side_by_side(theirs, fastest)])
    headers = [
        "VW's build",
        "ours",
        "error",
        "ours",
        "s",
        "ours",
        "times",
        "us",
        "ours",
        "times",
        "MB",
        "ours",
        "share",
    ]
    floats = ("", "", ".4f", ".4f", ".2f", ".3f", ".1f", ".1f", ".2f", ".1f", ".0f", ".1f", ".4f")
    return tabulate(rows, headers, floatfmt=floats) if rows else ""


def _was_asked(entrant: Entrant) -> bool:
    return bool(entrant.points and entrant.points[0].us)


def _error(entrant: Entrant) -> float:
    return median(entrant.points[0].error)


def _side_by_side(theirs: Entrant, ours: Entrant) -> list[float]:
    row = [_error(theirs), _error(ours)]
    for of_theirs, of_ours in ((theirs.seconds, ours.seconds), (theirs.points[0].us, ours.points[0].us)):
        row += [median(of_theirs), median(of_ours), median(of_theirs) / median(of_ours)]
    return [*row, median(theirs.peak_mb), median(ours.peak_mb), median(ours.peak_mb) / median(theirs.peak_mb)]


def streams_table(result: SetResult) -> str:
    """Return how fast rows are inserted into a build of half of them, a block of queries after each block of rows."""
    rows: list[list[Any]] = []
    for peer, streams in result.streams.items():
        if not streams:
            rows.append([peer, "cannot insert"])
        for stream in streams:
            costs = [median(stream.inserts_per_second), median(stream.us_a_query), median(stream.error)]
            rows.append([peer, described(stream.build), described(stream.setting), *costs])
    headers = ["peer", "build", "setting", "inserts a second", "us a query", "error"]
    return tabulate(rows, headers, floatfmt=("", "", "", ".0f", ".2f", ".4f"))


def report(name: str, result: SetResult, everything: bool = False) -> str:
    """Return everything there is to say about a set."""
    shape = result.shape
    kind = "sparse" if shape["sparse"] else "dense"
    parts = [
        f"# {name}: {shape['n_rows']} {kind} rows of {shape['n_features']} features, {shape['n_classes']} classes",
        "\n".join(f"Left out: {peer}, which {reason}" for peer, reason in result.left_out.items()),
        f"Builds\n\n{builds_table(result)}",
        f"Queries\n\n{points_table(result, everything)}",
        f"Are we behind?\n\n{said}" if (said := verdicts(result)) else "",
        f"As good as exact search\n\n{exact_table(result)}",
        f"Vowpal Wabbit's memory tree and ours\n\n{table}" if (table := equal_settings_table(result)) else "",
        f"Inserts\n\n{streams_table(result)}" if result.streams else "",
    ]
    return "\n\n".join(part for part in parts if part)
