"""Interrupt estimators during changes, and check that they still work.

Interrupts are real signals at random times, sometimes several of them, or exceptions raised at one of the lines that a
change executes. After each interrupt, the estimator must predict, pass ``check_invariants``, save, load and learn, or
report that it is not fitted. POSIX only, because of the signals.

    python tests/scripts/interrupt_estimators.py 2000
    python tests/scripts/interrupt_estimators.py 500 --how lines
"""

import argparse
import linecache
import pickle
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import NotFittedError

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever

_PACKAGE = str(Path(sys.modules["cmt_numba"].__file__ or "").parent)
_JIT = str(Path(_PACKAGE) / "_jit")  # runs once to compile, and is not interrupted
_FEW: dict[str, Any] = {"n_trees": 2, "n_router_passes": 1, "random_state": 0}

Change = Callable[[Any], Any]


class Case(NamedTuple):
    """A change to interrupt."""

    fitted: Callable[[], Any]  # returns the estimator to change, always the same
    change: Change
    learn: Change  # must work afterwards
    rows: Any  # to query it with
    may_be_unfitted: bool = False

    @property
    def estimator(self) -> Any:
        """The estimator to change."""
        return self.fitted()


def _data(sparse: bool) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(3)
    rows = random.normal(size=(80, 20)) * (random.random((80, 20)) < 0.4 if sparse else 1.0)
    rows[:, 0] += 0.1
    return (scipy.sparse.csr_array(rows) if sparse else rows), random.integers(0, 12, 80)


def cases() -> dict[str, Case]:
    """Return the changes of all kinds of estimators by name. Each estimator is fitted on first use."""
    found: dict[str, Case] = {}
    for sparse in (False, True):
        X, y = _data(sparse)
        form = "sparse" if sparse else "dense"
        Y = np.eye(14, dtype=int)[y] | np.eye(14, dtype=int)[(y + 1) % 14]
        vectors = np.random.default_rng(4).normal(size=(80, 7)).round(1)
        classifiers = {
            "classifier": (CMTClassifier(n_head_passes=2, **_FEW), y, y + 5),
            "multilabel": (CMTMultilabelClassifier(n_head_passes=2, **_FEW), Y[:, :8], Y),
        }
        for kind, (estimator, some, more) in classifiers.items():
            learn = _learning(X, more)
            found[f"{form} {kind}: first fit"] = Case(partial(_copy, estimator), _fitting(X, some), learn, X, True)
            fitted = cache(partial(_fitted, estimator, X[:50], some[:50]))
            found[f"{form} {kind}: fit"] = Case(fitted, _fitting(X, some), learn, X)
            found[f"{form} {kind}: partial_fit"] = Case(fitted, learn, learn, X)
        retrievers = {"by key": ("key", [f"value {i}" for i in range(80)]), "by value": ("value", vectors[:80] * 1.0)}
        for kind, (search, values) in retrievers.items():
            estimator = CMTRetriever(search, n_trees=2, n_components=4, random_state=0)
            learn = _learning(X[60:], values[60:])
            fitted = cache(partial(_fitted_with_feedback, estimator, X, values))
            name = f"{form} retriever {kind}"
            found[f"{name}: first fit"] = Case(partial(_copy, estimator), _fitting(X, values), learn, X, True)
            found[f"{name}: fit"] = Case(fitted, _fitting(X, values), learn, X)
            found[f"{name}: partial_fit"] = Case(fitted, learn, learn, X)
            found[f"{name}: feedback"] = Case(fitted, _rewarding(X), learn, X)
            found[f"{name}: remove"] = Case(fitted, lambda e: e.remove(np.arange(5, 45)), learn, X)
            found[f"{name}: set_values"] = Case(fitted, _setting(values), learn, X)
            if search == "key":
                found[f"{name}: replace"] = Case(fitted, _replacing(X), learn, X)
    return found


def _fitted(estimator: Any, X: Any, y: Any) -> Any:
    return _copy(estimator).fit(X, y)


def _fitted_with_feedback(estimator: Any, X: Any, values: Any) -> Any:
    fitted = _fitted(estimator, X[:60], values[:60])
    fitted.feedback(X[60:], np.arange(20), np.ones(20))
    return fitted


def _fitting(X: Any, y: Any) -> Change:
    return lambda estimator: estimator.fit(X, y)


def _learning(X: Any, y: Any) -> Change:
    return lambda estimator: estimator.partial_fit(X, y)


def _rewarding(X: Any) -> Change:
    ids = np.arange(80).reshape(40, 2) % 60
    return lambda estimator: estimator.feedback(X[:40], ids, np.tile([1.0, 0.2], (40, 1)))


def _setting(values: Any) -> Change:
    return lambda estimator: estimator.set_values(np.arange(10, 30), values[60:80])


def _replacing(X: Any) -> Change:
    return lambda estimator: estimator.replace(np.arange(10, 30), X[60:80])


def _copy(estimator: Any) -> Any:
    return pickle.loads(pickle.dumps(estimator))


def check(case: Case, estimator: Any) -> str:
    """Use an estimator after an interrupted change; return ``"works"`` or ``"unfitted"``."""
    try:
        answers = estimator.predict(case.rows)
    except NotFittedError:
        assert case.may_be_unfitted, "what had been fitted is not any more"
        case.change(estimator)
        estimator.check_invariants()
        return "unfitted"
    assert answers.shape[0] == case.rows.shape[0]
    estimator.check_invariants()
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(Path(folder) / "estimator")
        loaded = type(estimator).load(Path(folder) / "estimator")
    loaded.check_invariants()
    copy = _copy(estimator)
    for each in (estimator, loaded, copy):
        case.learn(each)
        each.check_invariants()
        each.predict(case.rows)
    return "works"


def lines_of(case: Case) -> int:
    """Return how many lines of this library a change executes."""
    return _traced(case.change, _copy(case.estimator), None)[0]


def at_line(case: Case, number: int) -> str:
    """Raise KeyboardInterrupt at the line with this number, and check the estimator."""
    estimator = _copy(case.estimator)
    _, interrupted = _traced(case.change, estimator, number)
    outcome = check(case, estimator)
    return outcome if interrupted else "too late"


def _traced(change: Change, estimator: Any, number: int | None) -> tuple[int, bool]:
    n_lines, interrupted = 0, False

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal n_lines
        if not frame.f_code.co_filename.startswith(_PACKAGE) or frame.f_code.co_filename.startswith(_JIT):
            return None
        if event == "line" and not _is_with(frame):
            n_lines += 1
            if n_lines == number:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
                return None
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        change(estimator)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sys.settrace(before)
    return n_lines, interrupted


def _is_with(frame: FrameType) -> bool:
    """Return whether a frame is at a ``with`` statement or at a ``pass``.

    An exception that a tracer raises when such a block begins or ends leaves its lock locked. Signals are not handled
    there.
    """
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(("with ", "pass"))


def by_signals(case: Case, seconds: float, n_signals: int, between: float) -> str:
    """Send signals after a delay, each of which raises KeyboardInterrupt, and check the estimator."""
    estimator, left, interrupted = _copy(case.estimator), n_signals, False

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, between)
        signal.raise_signal(signal.SIGINT)

    before, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
    try:
        try:
            sys.unraisablehook = lambda _: None  # ignore reports of exceptions that cannot be raised
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, seconds))
            case.change(estimator)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except KeyboardInterrupt:
            interrupted = True
    except KeyboardInterrupt:  # a further interrupt during the handling of the first
        interrupted = True
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = hook
            break
        except KeyboardInterrupt:
            continue
    outcome = check(case, estimator)
    return outcome if interrupted else "too late"


def duration(case: Case) -> float:
    """Return how many seconds a change takes."""
    estimator = _copy(case.estimator)
    began = time.perf_counter()
    case.change(estimator)
    return time.perf_counter() - began


def main() -> int:
    """Run the command line; return whether any estimator was broken."""
    parser = argparse.ArgumentParser(description="Interrupt estimators while they change.")
    parser.add_argument("number", type=int, help="how often, of all changes together")
    parser.add_argument("--how", choices=("lines", "signals", "both"), default="both")
    parser.add_argument("--only", default="", help="part of the name of the changes")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random, counts, n_failed = np.random.default_rng(given.seed), Counter[str](), 0
    chosen = {name: case for name, case in cases().items() if given.only in name}
    ways = ("lines", "signals") if given.how == "both" else (given.how,)
    each = -(-given.number // (len(chosen) * len(ways)))
    for name, case in chosen.items():
        check(case, _copy(case.estimator))  # compile
        for way in ways:
            outcomes = Counter[str]()
            n_lines, seconds = (lines_of(case), 0.0) if way == "lines" else (0, duration(case))
            numbers = random.permutation(n_lines)[:each] + 1 if way == "lines" else random.random(each) * seconds
            for number in numbers:
                try:
                    if way == "lines":
                        outcome = at_line(case, int(number))
                    else:
                        n_signals = int(random.integers(1, 4))
                        outcome = by_signals(case, float(number), n_signals, float(random.random() * 1e-3))
                except Exception as error:
                    outcome = "broken"
                    print(f"{name}, {way} {number}: {type(error).__name__}: {error}", flush=True)
                outcomes[outcome] += 1
            print(f"{name}, {way}: {dict(outcomes)}", flush=True)
            counts += outcomes
            n_failed += outcomes["broken"]
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return min(n_failed, 1)


if __name__ == "__main__":
    sys.exit(main())
