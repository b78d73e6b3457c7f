"""Learning from rewards and from known answers: time, and error before and after."""

from time import process_time

from cmt_numba import ContextualMemoryTree
from cmt_numba.rewards import LabelEquality

from .keys import FORMS, make_labelled

LABELS = 1000
_SHOTS = 10


class Supervised:
    """A supervised pass over 10,000 memories of 1,000 labels, in four trees on one thread."""

    params = (FORMS,)
    param_names = ("form",)
    timer = process_time
    number = 1  # each run changes the trees

    def setup(self, form: str) -> None:
        """Grow the trees and compile all kernels."""
        self.data = make_labelled(form, LABELS, _SHOTS)
        self.reward = LabelEquality(self.data.labels, self.data.labels)
        self.tree = ContextualMemoryTree(4, n_threads=1, random_state=0)
        self.ids = self.tree.insert(self.data.examples)
        other = ContextualMemoryTree(4, n_threads=1, random_state=0)
        ids = other.insert(self.data.examples[:100])
        other.learn(self.data.examples[:100], self.reward, own_ids=ids)
        other.teach(self.data.examples[:100], ids)

    def time_learn(self, form: str) -> None:
        """Query, reward and update once for each memory."""
        self.tree.learn(self.data.examples, self.reward, own_ids=self.ids)

    def time_teach(self, form: str) -> None:
        """Train the routers in one pass to find each memory."""
        self.tree.teach(self.data.examples, self.ids)

    def track_error_before(self, form: str) -> float:
        """Return the fraction of queries whose best memory has another label, before training."""
        return self._error()

    def track_error_after_learn(self, form: str) -> float:
        """Return the fraction of queries whose best memory has another label, after a supervised pass."""
        self.time_learn(form)
        return self._error()

    def track_error_after_teach(self, form: str) -> float:
        """Return the fraction of queries whose best memory has another label, after the routers were trained."""
        self.time_teach(form)
        return self._error()

    def _error(self) -> float:
        found = self.tree.query(self.data.queries).ids[:, 0]
        return float((self.data.labels[found] != self.data.answers).mean())
