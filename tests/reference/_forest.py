"""A forest: memories, queries, and the scorer."""

import math
from dataclasses import dataclass

import numpy as np

from ._nodes import TINY, Key, Leaf, Memory, Node, draw_members, keys_of
from ._random import ROW_STEP, WORD, SplitMix64, mix
from ._search import Frontier
from ._tree import Tree

STEEPNESS = 4.0
INSERTS_TO_FILL = 8


@dataclass
class Record:
    """What one query explored: nothing (no tree), memories drawn in a leaf (no node), or a side of a node."""

    tree: Tree | None = None
    node: Node | None = None
    side: int = -1
    probability: float = math.nan


@dataclass
class Answer:
    """The answer to one query: memory ids and scores, and the record of exploration."""

    ids: list[int]
    scores: list[float]
    record: Record


class Forest:
    """A forest over one list of memories, with one scorer; its parameters are those of ``ContextualMemoryTree``."""

    tree_type: type[Tree] = Tree  # subclasses may have other trees

    def __init__(
        self,
        n_trees: int = 1,
        alpha: float = 0.4,
        leaf_multiplier: float = 4.0,
        n_reroutes: int = 5,
        router_loss: str = "squared",
        router_learning_rate: float = 2.0,
        scorer_loss: str = "contrast",
        scorer_learning_rate: float = 0.1,
        max_memories: int | None = None,
        eviction: str = "least_recently_returned",
        random_state: int = 0,
    ) -> None:
        self.alpha = alpha
        self.leaf_multiplier = leaf_multiplier
        self.n_reroutes = n_reroutes
        self.router_loss = router_loss
        self.router_learning_rate = router_learning_rate
        self.scorer_loss = scorer_loss
        self.scorer_learning_rate = scorer_learning_rate
        self.max_memories = max_memories
        self.eviction = eviction
        seeds = np.random.SeedSequence(random_state).generate_state(n_trees + 1, np.uint64)
        *streams, self.query_stream = (SplitMix64(int(seed)) for seed in seeds)
        self.trees = [self.tree_type(self, stream) for stream in streams]
        self.memories: list[Memory] = []  # in the order in which REROUTE numbers them for its draws
        self.by_id: dict[int, Memory] = {}
        self.returned: list[Memory] = []  # those returned last at the end
        self.next_id = 0
        self.theta: dict[int, float] = {}
        self.theta_squares: dict[int, float] = {}

    def insert(self, X: object) -> list[int]:
        """INSERT each row into every tree and return the new ids.

        If there were too many memories then, the rows come in parts, and as many memories as needed go before each.
        """
        first, keys = self.next_id, keys_of(X)
        length = len(keys)
        if self.max_memories is not None and len(self.memories) + len(keys) > self.max_memories:
            length = max(1, self.max_memories // INSERTS_TO_FILL)
        for start in range(0, len(keys), length):
            part = keys[start : start + length]
            if self.max_memories is not None:
                self.make_room(len(self.memories) + len(part) - self.max_memories)
            for key in part:
                self.insert_key(key)
        return list(range(first, self.next_id))

    def insert_key(self, key: Key) -> None:
        """INSERT a key into every tree."""
        memory = Memory(self.next_id, key)
        self.next_id += 1
        self.memories.append(memory)
        self.returned.append(memory)
        self.by_id[memory.id] = memory
        for tree in self.trees:
            tree.insert(memory)

    def make_room(self, n: int) -> None:
        """Forget ``n`` memories, if that is any."""
        if n <= 0:
            return
        if self.eviction == "least_recently_returned":
            leaving = self.returned[:n]
        elif self.eviction == "oldest":
            leaving = sorted(self.memories, key=lambda memory: memory.id)[:n]
        else:
            drawn: list[int] = []
            for most in range(len(self.memories) - n, len(self.memories)):
                number = self.query_stream.below(most + 1)
                drawn.append(most if number in drawn else number)
            leaving = [self.memories[number] for number in drawn]
        self.remove([memory.id for memory in leaving])

    def note_returned(self, ids: list[int]) -> None:
        """Put memories at the end of those returned, one after another."""
        for memory in [self.by_id[memory_id] for memory_id in ids]:
            self.returned.remove(memory)
            self.returned.append(memory)

    def remove(self, ids: list[int]) -> None:
        """REMOVE memories from every tree; the last of the list takes the number that this frees."""
        for memory_id in ids:
            memory = self.by_id.pop(memory_id)
            self.returned.remove(memory)
            for tree in self.trees:
                tree.remove(memory)
            last = self.memories.pop()
            if last is not memory:
                self.memories[self.memories.index(memory)] = last

    def replace(self, ids: list[int], X: object) -> None:
        """Give memories other keys, all of them at first, and then move one after another in every tree."""
        memories = [self.by_id[memory_id] for memory_id in ids]
        for memory, key in zip(memories, keys_of(X), strict=True):
            memory.key = key
        for memory in memories:
            for tree in self.trees:
                tree.replace(memory)
        self.note_returned(ids)

    def reroute(self, times: int) -> None:
        """REROUTE every tree ``times`` times."""
        for tree in self.trees:
            tree.reroute(times)

    def leaf_limit(self, n: int) -> int:
        """Return how many memories a leaf of a tree of ``n`` may hold: c log2(n)."""
        return max(1, int(self.leaf_multiplier * math.log2(n)))

    def score(self, query: Key, memory: Memory) -> float:
        """Return f(x, z): the cosine, each feature's part of it weighted by 1 plus the scorer's weight."""
        return sum(query.get(i, 0.0) * z * (1 + self.theta.get(i, 0.0)) for i, z in memory.key.items())

    def query(self, X: object, k: int = 1, n_probes: int | None = None, epsilon: float = 0.0) -> list[Answer]:
        """QUERY (Algorithm 2) for each row, each with a random stream of its own."""
        keys = keys_of(X)
        if not self.memories:
            return [Answer([], [], Record()) for _ in keys]
        seed = self.query_stream.word() if epsilon > 0.0 else 0
        answers = []
        for row, key in enumerate(keys):
            stream = SplitMix64(mix(seed + row * ROW_STEP & WORD))
            if epsilon > 0.0 and (stream.state >> 11) / 2**53 < epsilon:
                found, record = self.explore(key, k, stream)
            else:
                leaves = self.search(key, len(self.trees) if n_probes is None else n_probes)
                found, record = self.best(key, k, leaves), Record()
            answers.append(Answer([memory.id for memory in found], [self.score(key, z) for z in found], record))
        for answer in answers:
            self.note_returned(answer.ids[::-1])  # the best of a row as its last
        return answers

    def search(self, key: Key, n_leaves: int) -> list[Leaf]:
        """Return up to ``n_leaves`` leaves of all trees, those on the cheapest paths.

        With at least a leaf for every tree, each tree gives its own best leaf first. The search for a leaf loses
        patience after as many routers as a leaf may have memories.
        """
        patience = self.leaf_limit(len(self.memories))
        leaves = []
        rest = Frontier()
        for tree in self.trees:
            frontier = Frontier()
            frontier.push(0.0, tree.root)
            if n_leaves >= len(self.trees):
                leaves.append(frontier.next_leaf(key, patience))
            for cost, place in frontier.entries:
                rest.push(cost, place)
        while len(leaves) < n_leaves and (leaf := rest.next_leaf(key, patience)) is not None:
            leaves.append(leaf)
        return leaves

    def best(self, key: Key, k: int, leaves: list[Leaf]) -> list[Memory]:
        """Return the ``k`` memories with the highest scores; equal scores are ordered by a hash of their ids.

        The hash changes as the first tree's stream goes on.
        """
        salt = mix(self.trees[0].stream.state)
        memories = {memory for leaf in leaves for memory in leaf.members}
        return sorted(memories, key=lambda z: (self.score(key, z), mix(salt ^ z.id)), reverse=True)[:k]

    def explore(self, key: Key, k: int, stream: SplitMix64) -> tuple[list[Memory], Record]:
        """Explore as QUERY does (Algorithm 2, lines 6 to 13), in a tree drawn uniformly."""
        tree = self.trees[stream.below(len(self.trees))]
        nodes, leaf = tree.path(key, tree.root)
        drawn = stream.below(len(nodes) + 1)
        if drawn == len(nodes):
            return draw_members(leaf, k, stream), Record(tree)
        node, side = nodes[drawn], stream.below(2)
        _, leaf = tree.path(key, node.children[side])
        return self.best(key, k, [leaf]), Record(tree, node, side, 0.5)

    def update(self, X: object, answers: list[Answer], rewards: np.ndarray) -> None:
        """UPDATE (Algorithm 3) with the rewards of each row's first memory, or of each of its memories.

        Updates of ``ContextualMemoryTree`` wait until rewards seem to depend on memories; this one does not.
        First all rows teach the scorer, then each tree learns from one row after another and reroutes after each.
        Memories and nodes that have gone teach nothing, save that a router learns from a memory that has gone since.
        """
        keys = keys_of(X)
        rewards = np.asarray(rewards, np.float32).reshape(len(keys), -1)
        rows = [
            (key, answer.record, list(zip(answer.ids, map(float, row_rewards), strict=False)))
            for key, answer, row_rewards in zip(keys, answers, rewards, strict=True)
        ]
        for key, record, rewarded in rows:
            if record.node is None:
                self.learn_rewards(key, [(self.by_id[i], reward) for i, reward in rewarded if i in self.by_id])
        for tree in self.trees:
            for key, record, rewarded in rows:
                if record.tree is tree and record.node is not None and not record.node.gone:
                    for _, reward in rewarded:
                        tree.learn_side(key, record.node, record.side, record.probability, reward)
                tree.reroute(self.n_reroutes)

    def learn_rewards(self, query: Key, rewarded: list[tuple[Memory, float]]) -> None:
        """Train the scorer on the rewards of the memories of one row.

        By regression on each, or by ranking two: the one with the highest reward, and of those with a lower reward the
        one with the highest score. Of equals the first counts.
        """
        if self.scorer_loss == "regression":
            for memory, reward in rewarded:
                self.learn_reward(query, memory, reward)
            return
        if not rewarded:
            return
        right, reward = max(rewarded, key=lambda pair: (pair[1], self.score(query, pair[0])))
        lower = [pair for pair in rewarded if pair[1] < reward]
        if not lower:
            return
        wrong, lower_reward = max(lower, key=lambda pair: self.score(query, pair[0]))
        gap = self.score(query, right) - self.score(query, wrong)
        gradient = {}
        for feature in sorted(right.key.keys() | wrong.key.keys()):
            slope = query.get(feature, 0.0) * (right.key.get(feature, 0.0) - wrong.key.get(feature, 0.0))
            if slope != 0.0:
                gradient[feature] = slope
        self.rank_by_descent(gradient, gap, reward - lower_reward)

    def rank_by_descent(self, gradient: dict[int, float], gap: float, worth: float) -> None:
        """Take an AdaGrad step for the loss ``worth * log(1 + exp(-gap * STEEPNESS))``."""
        slope = -worth * STEEPNESS / (1 + math.exp(gap * STEEPNESS))
        for feature, part in gradient.items():
            square = self.theta_squares.get(feature, 0.0) + (slope * part) ** 2
            self.theta_squares[feature] = square
            step = self.scorer_learning_rate * slope * part / math.sqrt(square + TINY)
            self.theta[feature] = max(-1.0, self.theta.get(feature, 0.0) - step)

    def learn_reward(self, query: Key, memory: Memory, reward: float) -> None:
        """Train the scorer towards a reward: squared loss, AdaGrad."""
        slope = self.score(query, memory) - reward
        for feature, z in memory.key.items():
            gradient = slope * query.get(feature, 0.0) * z
            square = self.theta_squares.get(feature, 0.0) + gradient**2
            self.theta_squares[feature] = square
            step = self.scorer_learning_rate * gradient / math.sqrt(square + TINY)
            self.theta[feature] = self.theta.get(feature, 0.0) - step
