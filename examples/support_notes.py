"""A memory of notes that learns which of them helped.

    python examples/support_notes.py

A support desk keeps notes about repairs. For each question, an assistant reads the three notes that the memory returns,
and afterwards learns only whether the problem was solved: one reward for three notes. The simulated desk has all that
makes this hard:

- Questions describe what a user sees, notes describe repairs, and they share few words besides the device.
- A tenth of all outcomes are wrong: problems that vanish by themselves, or users who give up.
- In the middle, a third of the repairs stop working, and new notes describe the new ones.
- The memory holds a limited number of notes (``max_items``). The desk keeps adding notes about other things, and the
  least useful notes are evicted: those that questions return least and that help least.

Three memories answer the same questions:

similarity
    ranks notes by words and vectors, and never learns.
similarity and value
    adds the mean reward of each note, as if all questions were alike.
feedback
    passes outcomes to ``MemoryStore.feedback``.

Prints the mean outcome of each tenth of the questions, and plots it over time. Needs scikit-learn, tabulate and
matplotlib.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from tabulate import tabulate

from cmt_numba import MemoryStore

N_SHOWN = 3
"""Number of notes that the assistant reads."""

N_TRIED = 8
"""Number of notes from which the last note is drawn."""

N_LATER = 20
"""Number of questions whose outcomes become known together."""

MOST_NOTES = 170

DEVICES = {
    "printer": ["printer", "laser printer"],
    "router": ["router", "wifi box"],
    "laptop": ["laptop", "notebook"],
    "scanner": ["scanner", "document scanner"],
    "projector": ["projector", "beamer"],
    "phone": ["phone", "desk phone"],
}
SYMPTOMS = [
    ["makes a grinding noise", "is loud", "rattles all day"],
    ["does not start", "stays dark", "is dead this morning"],
    ["is very slow", "takes minutes", "hangs for ages"],
    ["gets hot", "smells burnt", "is warm to the touch"],
    ["loses the connection", "drops out", "goes offline"],
]
REPAIRS = [
    "clean the fan and the filter",
    "replace the power supply",
    "install the latest firmware",
    "reset it to factory settings",
    "change the cable and the port",
    "move it away from the radiator",
]
NEW_REPAIR = "after the update, call the vendor and ask for part"
OTHERS = ["lunch order", "holiday list", "meeting room plan", "parking permits", "keys of the archive"]


class Problem(NamedTuple):
    """A device with a symptom."""

    device: str
    symptom: int


def encode(texts: list[str]) -> np.ndarray:
    """Return vectors of the character n-grams of texts, in place of a sentence encoder."""
    vectorizer = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 4), n_features=256)
    return vectorizer.transform(texts).toarray().astype(np.float32)


class Desk:
    """The questions, the notes and the outcomes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.problems = [Problem(device, symptom) for device in DEVICES for symptom in range(len(SYMPTOMS))]
        self.notes = {f"{device}: {repair}": f"{device}: {repair}" for device in DEVICES for repair in REPAIRS}
        self.right: dict[Problem, str] = {}
        for device in DEVICES:
            chosen = self.rng.permutation(len(REPAIRS))[: len(SYMPTOMS)]
            for symptom, repair in enumerate(chosen):
                self.right[Problem(device, symptom)] = f"{device}: {REPAIRS[repair]}"

    def ask(self) -> tuple[Problem, str]:
        """Return a problem and a question about it."""
        problem = self.problems[self.rng.integers(len(self.problems))]
        device, symptom = self.rng.choice(DEVICES[problem.device]), self.rng.choice(SYMPTOMS[problem.symptom])
        return problem, f"{self.rng.choice(['my', 'the', 'our'])} {device} {symptom}"

    def solve(self, problem: Problem, keys: list[str]) -> float:
        """Return the outcome of a question after the assistant has read notes."""
        is_solved = self.right[problem] in keys
        return float(is_solved != (self.rng.random() < 0.1))

    def change(self) -> dict[str, str]:
        """Change a third of the repairs, and return new notes about them."""
        changed = [self.problems[i] for i in self.rng.permutation(len(self.problems))[: len(self.problems) // 3]]
        for number, problem in enumerate(changed):
            self.right[problem] = f"{problem.device}: {NEW_REPAIR} {number + 100}"
        return {self.right[problem]: self.right[problem] for problem in changed}


class NotesMemory:
    """A memory that ranks notes by similarity."""

    def __init__(self) -> None:
        self.store = MemoryStore(encoder=encode, max_items=MOST_NOTES, random_state=0)
        self.rng = np.random.default_rng(0)

    def add(self, notes: dict[str, str]) -> None:
        """Add notes by key."""
        self.store.upsert(list(notes), texts=list(notes.values()))

    def find(self, question: str) -> list[str]:
        """Return the keys of the best notes, of which the last one is drawn from a few, so that each is tried."""
        keys = self.rank(question)
        return [*keys[: N_SHOWN - 1], keys[self.rng.integers(N_SHOWN - 1, len(keys))]]

    def rank(self, question: str) -> list[str]:
        """Return the keys of some notes, best first."""
        return [str(note.key) for note in self.store.query(texts=question, k=N_TRIED)[0]]

    def learn(self, questions: list[str], shown: list[list[str]], outcomes: list[float]) -> None:
        """Learn from the outcomes of questions."""


class ValuedMemory(NotesMemory):
    """A memory that adds the mean reward of each note to its similarity."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: dict[str, list[float]] = defaultdict(lambda: [0.5])

    def rank(self, question: str) -> list[str]:
        """Return the keys of the notes with the highest similarity and mean reward."""
        found = self.store.query(texts=question, k=N_TRIED)[0]
        best = sorted(found, key=lambda note: -note.score - np.mean(self.rewards[str(note.key)]))
        return [str(note.key) for note in best]

    def learn(self, questions: list[str], shown: list[list[str]], outcomes: list[float]) -> None:
        """Keep the outcomes of each note."""
        for keys, outcome in zip(shown, outcomes, strict=True):
            for key in keys:
                self.rewards[key].append(outcome)


class LearningMemory(NotesMemory):
    """A memory that learns from outcomes which notes help with which questions."""

    def learn(self, questions: list[str], shown: list[list[str]], outcomes: list[float]) -> None:
        """Pass the outcomes to the store."""
        self.store.feedback(None, shown, outcomes, texts=questions)  # one outcome for all notes of a question


def simulate(memory: NotesMemory, n_questions: int, seed: int) -> np.ndarray:
    """Return whether each question was given the right note."""
    desk, right = Desk(seed), np.zeros(n_questions)
    memory.add(desk.notes)
    waiting: list[tuple[str, list[str], float]] = []
    for number in range(n_questions):
        if number == n_questions // 2:
            memory.add(desk.change())
        if number % 10 == 0:
            topic = OTHERS[number // 10 % len(OTHERS)]
            memory.add({f"other {number}": f"{topic} of week {number // 10}"})
        problem, question = desk.ask()
        shown = memory.find(question)
        right[number] = desk.right[problem] in shown
        waiting.append((question, shown, desk.solve(problem, shown)))
        if len(waiting) == N_LATER:
            questions, keys, outcomes = zip(*waiting, strict=True)
            memory.learn(list(questions), list(keys), list(outcomes))
            waiting = []
    return right


MEMORIES = {"similarity": NotesMemory, "similarity and value": ValuedMemory, "feedback": LearningMemory}


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=2000, help="number of questions (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the desk (default: 0)")
    parser.add_argument("--output", type=Path, default=Path(), help="folder of the plot (default: the current folder)")
    options = parser.parse_args()
    found = {}
    for name, memory in MEMORIES.items():
        print(f"{name}: {options.questions} questions", flush=True)
        found[name] = simulate(memory(), options.questions, options.seed)
    rows = [[name, *(part.mean() for part in np.array_split(right, 10))] for name, right in found.items()]
    print(tabulate(rows, ["right notes", *(f"{tenth}/10" for tenth in range(1, 11))], "github", floatfmt=".2f"))

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    width = max(1, options.questions // 20)
    for name, right in found.items():
        mean = np.convolve(right, np.full(width, 1.0 / width), "valid")
        axes.plot(np.arange(mean.size) + width, mean, label=name)
    axes.axvline(options.questions // 2, color="grey", linestyle=":", label="a third of the repairs change")
    axes.set(xlabel="question", ylabel="questions with the right note", ylim=(0.0, 1.0))
    axes.legend()
    figure.tight_layout()
    path = options.output / "support_notes.png"
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
