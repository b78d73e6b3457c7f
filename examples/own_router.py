"""Try another router and another scorer before writing a kernel.

    python examples/own_router.py --rows 600

`tests/reference` implements the tree in plain Python, with one method for each step of the paper's algorithms. A
subclass replaces a single method. This script compares three forests on handwritten digits:

- The forest of the paper has routers that learn from each memory, and cosine similarity as scorer.
- Random routers have random directions and never learn.
- The Manhattan scorer compares keys by their Manhattan distance.

"Self-consistency" is the fraction of memories found by a query with their own key. "Accuracy" is the fraction of test
digits with the label of their best memory. Both search one leaf.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tabulate import tabulate

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from reference import Forest, Memory, Node, Tree

N_FEATURES = 64


class RandomTree(Tree):
    """A tree whose routers are random directions."""

    def teach(self, node: Node, key: dict[int, float]) -> int:
        """Return the side of a key; a new router first draws its direction."""
        if not node.weights:
            rng = np.random.default_rng(self.stream.word())
            node.weights = dict(enumerate(rng.normal(size=N_FEATURES)))
        return node.side_of(key)


class RandomForest(Forest):
    """A forest of random trees."""

    tree_type = RandomTree


class ManhattanForest(Forest):
    """A forest that scores by Manhattan distance."""

    def score(self, query: dict[int, float], memory: Memory) -> float:
        """Return the negative Manhattan distance of the keys."""
        return -sum(abs(query.get(i, 0.0) - memory.key.get(i, 0.0)) for i in {*query, *memory.key})


FORESTS = {"paper": Forest, "random routers": RandomForest, "Manhattan scorer": ManhattanForest}


def compare(n_rows: int) -> dict[str, tuple[float, float]]:
    """Return the self-consistency and accuracy of each forest on handwritten digits."""
    X, y = load_digits(return_X_y=True)
    X = X - X.mean(axis=0)
    order = np.random.default_rng(0).permutation(len(X))
    stored, asked = order[:n_rows], order[n_rows : n_rows + 300]
    found = {}
    for name, forest_type in FORESTS.items():
        forest = forest_type(random_state=0)
        forest.insert(X[stored])
        own = [answer.ids[0] for answer in forest.query(X[stored])]
        best = [answer.ids[0] for answer in forest.query(X[asked])]
        consistency = np.mean(np.array(own) == np.arange(n_rows))
        found[name] = float(consistency), float(np.mean(y[stored][best] == y[asked]))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600, help="number of digits to store")
    print("Comparing routers of the reference implementation on digits", flush=True)
    rows = [(name, *figures) for name, figures in compare(parser.parse_args().rows).items()]
    print(tabulate(rows, ["", "self-consistency", "accuracy"], floatfmt=".3f"))


if __name__ == "__main__":
    main()
