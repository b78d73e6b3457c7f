"""Break durable objects with random faults, and compare them with twins in memory that never fail.

Each durable class makes random changes in a folder: rows of all magnitudes, weights from 0 to 1e30, other parameters.
Faults strike during a change or while the folder is opened or closed. Afterwards the folder must open, in the state
after the last acknowledged change or after the change under way. The twin must refuse the same changes, and a refused
change must leave everything as it was. POSIX only.

    python tests/scripts/break_folders.py 3000 --seed 1
    python tests/scripts/break_folders.py 500 --seed 2 --only tree store
    python tests/scripts/break_folders.py 100 --only shards  # needs the extra ray; takes much longer
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from durable_kinds import FAILURES, KINDS, REFUSED, Kind, Random, State
from faults import Countdown, fail_to_write, full_disk, interrupt, kill
from sklearn.base import BaseEstimator

from cmt_numba.journal import JournalError


def difference(one: State, other: State) -> str:
    """Return the names of the parts in which two states differ, or an empty string."""
    if one.keys() != other.keys():
        return f"{sorted(one)} against {sorted(other)}"
    return ", ".join(name for name in one if not is_same(one[name], other[name]))


def is_same(one: Any, other: Any) -> bool:
    """Return whether two parts of states are equal, bit for bit."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and bool(one == other)


class WrongError(Exception):
    """A folder does not open, or has the wrong contents."""


@dataclass
class Trial:
    """A folder with an object in it, and two twins in memory: one before the last change, and one after it.

    A change draws its arguments from its number and the changed object, so it is the same for all three.
    """

    kind: Kind
    options: dict[str, Any]
    path: Path
    seed: int
    n_faults: Counter[str]
    number: int = 0  # of changes that the later twin has made
    history: list[str] = field(default_factory=list)
    has_been_asked: bool = False  # after a failure: the folder may also hold what was learned for the answer

    def __post_init__(self) -> None:
        self.random = Random(self.seed, 1)
        self.sparse = self.random.random() < 0.4
        self.before, self.after = self.kind.new_twin(**self.options), self.kind.new_twin(**self.options)
        self.n_seen = {True: 30, False: 3000}  # writes and calls in a change
        self.thing: Any = None
        self.open()

    def open(self, n_changes: int = 0) -> None:
        """Open the folder, with random frequencies of snapshots and of waits for the disk.

        Pass the options until the first change, by a process (``n_changes`` > 0) or by the twin, has stored them.
        """
        self.how: dict[str, Any] = {
            "snapshot_bytes": int(self.random.choice([0, 5000, 1 << 26])),
            "snapshot_seconds": float(self.random.choice([0.0, 10.0])),
            "sync_every": int(self.random.choice([1, 3, 100])),
        }
        if not self.number and not n_changes:
            self.how |= self.options
        try:
            self.thing = self.kind.opened(self.path, **self.how)
        except Exception as error:
            raise WrongError("the folder does not open") from error

    def close(self) -> None:
        """Close the folder, which may fail."""
        with suppress(*FAILURES):
            if self.thing is not None:
                self.thing.close()

    def ask(self) -> None:
        """Query the object, which may record the query."""
        self.has_been_asked = True
        with suppress(*FAILURES, *REFUSED):
            self.kind.ask(self.thing)

    def name_of(self, number: int) -> str:
        """Return the name of the change with a number."""
        names = list(self.kind.changes)
        return names[int(Random(self.seed, number).integers(1, len(names))) if number else 0]

    def change(self, thing: Any, number: int) -> str:
        """Make the change with a number; return the error if it was refused, or an empty string."""
        try:
            self.kind.changes[self.name_of(number)](thing, Random(self.seed, number, 2, sparse=self.sparse))
        except JournalError:
            raise
        except REFUSED as error:
            return type(error).__name__
        return ""

    def advance(self) -> str:
        """Advance both twins by one change; return the error if it was refused."""
        if self.number:
            self.change(self.before, self.number - 1)
        self.number += 1
        return self.change(self.after, self.number - 1)

    def differs(self, twin: Any) -> str:
        """Return how the object in the folder differs from a twin."""
        one, other = self.kind.state(self.thing), self.kind.state(twin)
        if self.has_been_asked:
            one.pop("file", None)
            other.pop("file", None)
            if self.options.get("eviction") == "least_recently_returned":  # the next insert may evict other memories
                one["ids"], other["ids"] = one["ids"].size, other["ids"].size
        return difference(one, other)

    def differs_from(self, twin: Any) -> str:
        """Return how the object differs from a twin, with the parameters of the twin.

        A failed change may leave either parameters: ``set_params`` itself is no change of a folder.
        """
        if isinstance(twin, BaseEstimator):
            self.thing.set_params(**twin.get_params())
        return self.differs(twin)

    def step(self) -> None:
        """Inject a fault, with or without a change. Afterwards the object equals its later twin."""
        fault = FAULT_NAMES[int(self.random.integers(len(FAULT_NAMES)))]
        self.history.append(f"{self.name_of(self.number)} with {fault}")
        FAULTS[fault](self)
        if different := self.differs(self.after):
            raise WrongError(f"other {different}")

    def make(self) -> None:
        """Make the last change of the twins, without a fault."""
        refused = self.advance()
        self.require_answer(self.change(self.thing, self.number - 1), refused)

    def require_answer(self, answer: str, twins: str) -> None:
        """Fail unless the twin accepted the change too, or refused it with the same error."""
        if answer != twins:
            raise WrongError(f"refused with {answer or 'nothing'}, and by the twin with {twins or 'nothing'}")

    def make_during(self, name: str, condition: Any, happened: Callable[[], bool]) -> None:
        """Make a change during a fault; if the change fails, continue in a random way."""
        refused, answer = self.advance(), None
        try:
            with condition:
                try:
                    answer = self.change(self.thing, self.number - 1)
                except FAILURES:
                    if self.random.random() < 0.2:
                        self.ask()
                    if self.random.random() < 0.3:
                        self.close()
                    raise
        except FAILURES as error:
            if not happened():
                raise WrongError("a change fails without a fault") from error
        self.n_faults[name] += happened()
        if answer is not None:
            self.require_answer(answer, refused)
        elif self.random.random() < 0.5 or not self.goes_on():
            self.close()
            self.open()
            self.catch_up()

    def goes_on(self) -> bool:
        """Repeat the change without opening the folder again, unless the object requires that."""
        try:
            if not self.differs_from(self.after):
                return False
            if self.differs_from(self.before):
                return False  # the next query or change restores it
            self.change(self.thing, self.number - 1)
        except (*FAILURES, *REFUSED):
            return False
        return True

    def catch_up(self) -> None:
        """Make the last change if it is missing. Fail if the folder has neither the state before it nor after it."""
        if different := self.differs_from(self.after):
            if other := self.differs_from(self.before):
                raise WrongError(f"neither what was before the change ({other}) nor what is after it ({different})")
            self.change(self.thing, self.number - 1)

    def strike(self, name: str, strike: Callable[[], None], *, writes: bool) -> None:
        """Make a change, and inject a fault during it."""
        countdown = Countdown(int(self.random.random() * 1.1 * self.n_seen[writes]), strike, writes=writes)
        self.make_during(name, countdown, lambda: countdown.struck)
        self.n_seen[writes] = max(3, countdown.seen)


def upkeep(trial: Trial) -> None:
    """Do the upkeep of the folder, such as a snapshot, and make a write fail."""
    names = sorted(trial.kind.upkeep)
    countdown = Countdown(int(trial.random.integers(20)), fail_to_write, writes=True)
    try:
        with countdown:
            getattr(trial.thing, names[int(trial.random.integers(len(names)))])()
    except FAILURES:
        trial.close()
        trial.open()
    trial.n_faults["failing upkeep"] += countdown.struck


def reopen(trial: Trial) -> None:
    """Make a write fail while the folder is closed, and another one while it is opened."""
    closing = Countdown(int(trial.random.integers(20)), fail_to_write, writes=True)
    with suppress(*FAILURES), closing:
        trial.thing.close()
    trial.close()
    opening = Countdown(int(trial.random.integers(40)), interrupt, writes=True)
    with suppress(*FAILURES), opening:
        trial.thing = trial.kind.opened(trial.path, **trial.how)
    trial.close()
    trial.n_faults["failing close"] += closing.struck
    trial.n_faults["failing open"] += opening.struck
    trial.open()


def give_invalid(trial: Trial) -> None:
    """Give an invalid argument, now that the number of features is fixed."""
    if not trial.number:
        trial.make()
    names = sorted(trial.kind.invalid)
    name = names[int(trial.random.integers(len(names)))]
    try:
        trial.kind.invalid[name](trial.thing)
    except REFUSED:
        trial.n_faults["invalid argument"] += 1
    else:
        raise WrongError(f"invalid {name} accepted")


def copy(trial: Trial) -> None:
    """Copy the folder while it is open, and check that the copy has the same contents."""
    other, opened = trial.path.with_name("copy"), trial.thing
    shutil.copytree(trial.path, other)
    try:
        with trial.kind.opened(other) as trial.thing:
            different = trial.differs(trial.after)
    except Exception as error:
        raise WrongError("a copy of the open folder does not open") from error
    finally:
        trial.thing = opened
        shutil.rmtree(other)
    if different:
        raise WrongError(f"a copy of the open folder has other {different}")
    trial.n_faults["copy while open"] += 1


def kill_a_process(trial: Trial, *, writes: bool) -> None:
    """Start a process that opens the folder and makes changes, and kill it at a write or at a random moment."""
    trial.close()
    first, n_writes, seconds = trial.number, int(trial.random.integers(300)), float(trial.random.random())
    most = 6 if writes else 100
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            with Countdown(n_writes, kill, writes=True) if writes else nullcontext():
                thing = trial.kind.opened(trial.path, **trial.how)
                for number in range(first, first + most):
                    trial.change(thing, number)
                    os.write(writing, b"+")
            kill()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    if not writes:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    acknowledged = first + len(os.read(reading, most))
    os.close(reading)
    trial.history.append(f"killed after {', '.join(map(trial.name_of, range(first, acknowledged))) or 'no change'}")
    if not os.WIFSIGNALED(status):
        raise WrongError("a process has failed without a fault")
    trial.open(acknowledged)
    trial.n_faults["kill"] += 1
    while trial.number < acknowledged:
        trial.advance()
    if acknowledged < first + most and trial.differs(trial.after):
        trial.advance()
        if different := trial.differs(trial.after):
            raise WrongError(f"neither the last acknowledged change nor the next one is the last: other {different}")


FAULTS: dict[str, Callable[[Trial], None]] = {
    "no fault": Trial.make,
    "a kill at a write": lambda trial: kill_a_process(trial, writes=True),
    "a kill": lambda trial: kill_a_process(trial, writes=False),
    "a full disk": lambda trial: trial.make_during("full disk", full_disk(trial.path, trial.random), lambda: True),
    "a failed write": lambda trial: trial.strike("failed write", fail_to_write, writes=True),
    "an interrupt": lambda trial: trial.strike("interrupt", interrupt, writes=False),
    "an interrupted write": lambda trial: trial.strike("interrupted write", interrupt, writes=True),
    "an invalid argument": give_invalid,
    "a copy": copy,
    "closing and opening": reopen,
    "upkeep": upkeep,
}
FAULT_NAMES = ["no fault", *FAULTS]
SHARDS = "shards"  # the name of sharded stores on the command line; they need Ray


def break_folders(name: str, n: int, seed: int, most: int = 10) -> tuple[Counter[str], list[str]]:
    """Break folders of one class until there were ``n`` faults; return how many of each kind, and all errors."""
    kind, n_faults, wrong = KINDS[name], Counter[str](), list[str]()
    random = Random(seed, *name.encode())
    while n_faults.total() < n and len(wrong) < most:
        one, options = int(random.integers(1 << 31)), kind.variants[int(random.integers(len(kind.variants)))]
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(kind, options, Path(folder) / name, one, n_faults)
            try:
                for _ in range(min(40, n)):
                    if not trial.has_been_asked:
                        trial.step()
                trial.thing.close()
            except Exception as error:
                causes = f"{type(error).__name__}: {error}" + (f" ({error.__cause__!r})" if error.__cause__ else "")
                wrong.append(
                    f"{'sparse ' * trial.sparse}{options}, {trial.how}, seed {one}, {trial.history[-4:]}: {causes}"
                )
                if not isinstance(error, WrongError):
                    traceback.print_exc()
            finally:
                trial.close()
    return n_faults, wrong


def main() -> int:
    """Run the command line; print a line for each class, and all errors."""
    parser = argparse.ArgumentParser(description="Inject faults into durable objects, and compare them with twins.")
    parser.add_argument("number", type=int, help="total number of faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[*KINDS, SHARDS], default=list(KINDS), help="only these classes")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    n_wrong = 0
    for name in given.only:
        n = -(-given.number // len(given.only))
        if name == SHARDS:
            from broken_shards import break_shards  # needs Ray

            n_faults, wrong = break_shards(n, given.seed)
        else:
            n_faults, wrong = break_folders(name, n, given.seed)
        listed = ", ".join(f"{n} {fault}" for fault, n in sorted(n_faults.items()))
        print(f"{name}: {n_faults.total()} faults ({listed}), {len(wrong)} wrong", flush=True)
        for line in wrong:
            print(f"    {line}", flush=True)
        n_wrong += len(wrong)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
