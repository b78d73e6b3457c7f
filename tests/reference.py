"""A slow Contextual Memory Tree in plain Python, which the kernels must match step by step.

This is the specification: it follows the algorithms of Sun et al. (Contextual Memory Trees, ICML 2019) by their
numbers, with objects for nodes, leaves and memories, dicts from feature to weight, and Python's own numbers. Sums are
float64, so results agree with those of the kernels up to the rounding of float32.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse

LEFT = 0
RIGHT = 1

SPLIT_PASSES = 5
CLOSE_ENOUGH = 0.1
SURE = 0.75
TINY = 1e-20
STEEPNESS = 4.0
MARGIN = 0.2
AGGRESSIVENESS = 10.0
INSERTS_TO_FILL = 8

WORD = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
ROW_STEP = 0xD1342543DE82EF95

Key = dict[int, float]


def mix(word: int) -> int:
    """Return SplitMix64's scrambling of a 64-bit word.

    >>> hex(mix(GOLDEN_GAMMA))
    '0xe220a8397b1dcdaf'
    """
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


class SplitMix64:
    """A stream of random numbers: a 64-bit counter that takes large odd steps, scrambled."""

    def __init__(self, state: int) -> None:
        self.state = state & WORD

    def word(self) -> int:
        """Return 64 random bits."""
        self.state = (self.state + GOLDEN_GAMMA) & WORD
        return mix(self.state)

    def below(self, n: int) -> int:
        """Return an integer drawn uniformly from ``0 .. n - 1``."""
        return ((self.word() >> 32) * n) >> 32


def keys_of(X: object) -> list[Key]:
    """Return each row as a dict from feature to value, scaled to length 1 and rounded to float32 as keys are."""
    rows = X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)
    keys = []
    for row in rows.astype(np.float32).astype(np.float64):
        length = np.linalg.norm(row) or 1.0
        keys.append({int(i): float(np.float32(row[i] / length)) for i in np.flatnonzero(row)})
    return keys


def squared_length(key: Key) -> float:
    """Return the sum of the squares of a key's values."""
    return sum(x**2 for x in key.values())


@dataclass(eq=False)
class Memory:
    """A stored key and the id that it was given."""

    id: int
    key: Key


@dataclass(eq=False)
class Leaf:
    """A leaf: the memories that it holds, in the order of their arrival save for gaps that the last one filled."""

    parent: "Node | None" = None
    members: list[Memory] = field(default_factory=list)


@dataclass(eq=False)
class Node:
    """An internal node: two children, the memories below each, and a linear router with AdaGrad accumulators."""

    parent: "Node | None" = None
    children: "list[Place | None]" = field(default_factory=lambda: [None, None])
    below: list[int] = field(default_factory=lambda: [0, 0])
    examples: int = 0
    mistakes: int = 0
    departed: int = 0
    gone: bool = False
    bias: float = 0.0
    bias_square: float = 0.0
    weights: dict[int, float] = field(default_factory=dict)
    squares: dict[int, float] = field(default_factory=dict)

    def margin(self, key: Key) -> float:
        """Return g(x), right if positive."""
        return self.bias + sum(self.weights.get(feature, 0.0) * x for feature, x in key.items())

    def side_of(self, key: Key) -> int:
        """Return the side that the router sends a key to."""
        return RIGHT if self.margin(key) > 0.0 else LEFT

    def balance(self) -> float:
        """Return log n_left - log n_right, with one added to each so that an empty side is finite."""
        return math.log((self.below[LEFT] + 1) / (self.below[RIGHT] + 1))


Place = Node | Leaf


def memories_below(place: Place) -> list[Memory]:
    """Return the memories in all leaves below a place."""
    if isinstance(place, Leaf):
        return place.members
    return [memory for child in place.children for memory in memories_below(child)]


@dataclass
class Record:
    """What one query explored: nothing (no tree), memories drawn in a leaf (no node), or a side of a node."""

    tree: "Tree | None" = None
    node: Node | None = None
    side: int = -1
    probability: float = math.nan


@dataclass
class Answer:
    """The answer to one query: memory ids and scores, and the record of exploration."""

    ids: list[int]
    scores: list[float]
    record: Record


class Frontier:
    """Places to go on from, the cheapest first: a textbook binary heap.

    Which of two equally cheap places comes first is settled by how such a heap works: an entry moves up past dearer
    ones only, and down past cheaper ones only, the left one if both below are equally cheap.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[float, Place]] = []

    def push(self, cost: float, place: Place) -> None:
        """Add a place."""
        heap = self.entries
        heap.append((cost, place))
        i = len(heap) - 1
        while i > 0 and heap[(i - 1) // 2][0] > cost:
            above = (i - 1) // 2
            heap[i], heap[above] = heap[above], heap[i]
            i = above

    def pop(self) -> tuple[float, Place]:
        """Take the cheapest place."""
        last = self.entries.pop()
        return self.change(*last) if self.entries else last

    def change(self, cost: float, place: Place) -> tuple[float, Place]:
        """Take the cheapest place and add another."""
        heap = self.entries
        cheapest, heap[0] = heap[0], (cost, place)
        i = 0
        while 2 * i + 1 < len(heap):
            below = min(range(2 * i + 1, min(2 * i + 3, len(heap))), key=lambda j: heap[j][0])
            if heap[below][0] >= heap[i][0]:
                break
            heap[i], heap[below] = heap[below], heap[i]
            i = below
        return cheapest

    def next_leaf(self, key: Key, patience: int) -> Leaf | None:
        """Go on from the cheapest place down to a leaf; None if there is no place left.

        A child costs what its parent cost and what the margin for its side falls short of ``SURE``. When another place
        gets cheaper than the one at hand, the search goes on from there, but only for the first ``patience`` routers.
        """
        if not self.entries:
            return None
        cost, place = self.pop()
        while isinstance(place, Node):
            margin, near = place.margin(key), place.side_of(key)
            self.push(cost + SURE + abs(margin), place.children[1 - near])
            cost += max(0.0, SURE - abs(margin))
            place = place.children[near]
            patience -= 1
            if patience > 0 and self.entries[0][0] < cost:
                cost, place = self.change(cost, place)
        return place


class Tree:
    """One tree over the memories of a forest."""

    def __init__(self, forest: "Forest", stream: SplitMix64) -> None:
        self.forest = forest
        self.stream = stream
        self.root: Place = Leaf()
        self.leaf_of: dict[Memory, Leaf] = {}  # the map M of the paper

    def path(self, key: Key, place: Place) -> tuple[list[Node], Leaf]:
        """PATH (Algorithm 1): the nodes that the routers lead through from ``place``, and the leaf reached."""
        nodes = []
        while isinstance(place, Node):
            nodes.append(place)
            place = place.children[place.side_of(key)]
        return nodes, place

    def insert(self, memory: Memory) -> None:
        """INSERT (Algorithm 4) from the root, then the reroutes due."""
        self.insert_below(self.root, memory, len(self.leaf_of) + 1)
        self.reroute(self.forest.n_reroutes)

    def insert_below(self, place: Place, memory: Memory, n: int) -> None:
        """INSERT (Algorithm 4) from ``place``, in a tree of ``n`` memories with this one."""
        limit = self.forest.leaf_limit(n)
        while isinstance(place, Node):
            side = self.teach(place, memory.key)
            if limit == 1 and place.below[side] == 1 and place.below[1 - side] == 0:
                side = 1 - side  # splitting a leaf of one memory would only put it below another empty leaf
            place.below[side] += 1
            place = place.children[side]
        if len(place.members) < limit:
            place.members.append(memory)
            self.leaf_of[memory] = place
        else:
            self.insert_below(self.split(place), memory, n)

    def teach(self, node: Node, key: Key) -> int:
        """Train a router on a memory that comes by (Algorithm 4, lines 2 to 4) and return the side it then takes.

        The label is the side that the router leans to, unless that side has grown too heavy.
        """
        alpha = self.forest.alpha
        pull = (1 - alpha) * node.margin(key) + alpha * node.balance()
        label = 1 if pull > 0.0 else -1
        margin = self.train(node, key, label, 1.0)
        side = RIGHT if margin > 0.0 else LEFT
        node.examples += 1
        node.mistakes += side != (RIGHT if label > 0 else LEFT)
        return side

    def train(self, node: Node, key: Key, label: int, importance: float) -> float:
        """Train a router towards a label by an AdaGrad step and return its margin afterwards.

        A loss whose slope is below ``CLOSE_ENOUGH`` makes no step. The rate is divided by 1 plus the key's 1-norm,
        which is how far AdaGrad's first step would move the margin. With the squared loss no step goes past the label.
        """
        if self.forest.router_loss == "mira":
            return self.train_passively(node, key, label, importance)
        margin = node.margin(key)
        squared = self.forest.router_loss == "squared"
        slope = margin - label if squared else -label / (1 + math.exp(label * margin))
        error = abs(slope)
        if error < CLOSE_ENOUGH or importance == 0.0:
            return margin
        rate = self.forest.router_learning_rate / (1 + sum(abs(x) for x in key.values()))
        slope *= importance
        node.bias_square += slope**2
        bias_step = rate * slope / math.sqrt(node.bias_square + TINY)
        steps = {}
        for feature, x in key.items():
            node.squares[feature] = node.squares.get(feature, 0.0) + (slope * x) ** 2
            steps[feature] = rate * slope * x / math.sqrt(node.squares[feature] + TINY)
        move = bias_step + sum(steps[feature] * x for feature, x in key.items())
        share = error / abs(move) if squared and abs(move) > error else 1.0
        node.bias -= share * bias_step
        for feature, step in steps.items():
            node.weights[feature] = node.weights.get(feature, 0.0) - share * step
        return margin - share * move

    def train_passively(self, node: Node, key: Key, label: int, importance: float) -> float:
        """Train a router by MIRA: as little as takes the margin to the label, or by the learning rate if that is less.

        An importance below 1 takes it only so much of the way.
        """
        margin = node.margin(key)
        hinge = 1 - label * margin
        if hinge < CLOSE_ENOUGH or importance == 0.0:
            return margin
        amount = min(self.forest.router_learning_rate, min(importance, 1.0) * hinge / (squared_length(key) + 1))
        node.bias += label * amount
        for feature, x in key.items():
            node.weights[feature] = node.weights.get(feature, 0.0) + label * amount * x
        return node.margin(key)

    def split(self, leaf: Leaf) -> Node:
        """Put a node with two leaves in a full leaf's place (INSERTLEAF, Algorithm 5, lines 3 to 7).

        The fresh router sees the memories several times before it parts them. If it sends all one way, its threshold
        moves to the middle of their margins; if it still does, every second one goes right. The leaf itself becomes
        the left child, so a memory on its way back to it still knows it.
        """
        node = Node()
        self.put_in_place_of(leaf, node)
        for _ in range(SPLIT_PASSES):
            node.below = [0, 0]
            for memory in leaf.members:
                node.below[self.teach(node, memory.key)] += 1
        members = leaf.members
        margins = [node.margin(memory.key) for memory in members]
        if max(margins) <= 0.0 or min(margins) > 0.0:
            node.bias -= (min(margins) + max(margins)) / 2
        sides = [node.side_of(memory.key) for memory in members]
        if len(set(sides)) == 1:
            sides = [i % 2 for i in range(len(members))]
        node.children = [leaf, Leaf()]
        for side, child in enumerate(node.children):
            child.parent = node
            child.members = [memory for memory, its_side in zip(members, sides, strict=True) if its_side == side]
            node.below[side] = len(child.members)
            self.leaf_of.update((memory, child) for memory in child.members)
        return node

    def remove(self, memory: Memory) -> None:
        """REMOVE (Algorithm 6) a memory; an emptied leaf disappears."""
        leaf = self.take_out(memory)
        del self.leaf_of[memory]
        node = leaf.parent
        while node is not None:
            self.depart(node)
            node = node.parent
        self.collapse_if_empty(leaf)

    def replace(self, memory: Memory) -> None:
        """REMOVE a memory whose key has changed, INSERT it again, then the reroutes due.

        The leaf it came from stays until it has arrived, maybe there again.
        """
        leaf = self.take_out(memory)
        node = leaf.parent
        while node is not None:
            self.depart(node)
            node = node.parent
        self.insert_below(self.root, memory, len(self.leaf_of))
        self.collapse_if_empty(leaf)
        self.reroute(self.forest.n_reroutes)

    def depart(self, node: Node) -> None:
        """Count a memory removed below a node, whose router forgets when half of what it had has gone.

        It forgets the features that no memory below it has any more.
        """
        node.departed += 1
        if 2 * node.departed >= sum(node.below):
            kept = {feature for memory in memories_below(node) for feature in memory.key}
            node.weights = {feature: weight for feature, weight in node.weights.items() if feature in kept}
            node.squares = {feature: square for feature, square in node.squares.items() if feature in kept}
            node.departed = 0

    def take_out(self, memory: Memory) -> Leaf:
        """Take a memory out of its leaf, where the last one fills the gap, and out of the counts above."""
        leaf = self.leaf_of[memory]
        last = leaf.members.pop()
        if last is not memory:
            leaf.members[leaf.members.index(memory)] = last
        place = leaf
        while place.parent is not None:
            place.parent.below[place.parent.children.index(place)] -= 1
            place = place.parent
        return leaf

    def collapse_if_empty(self, leaf: Leaf) -> None:
        """Let the sibling of an empty leaf take their parent's place."""
        node = leaf.parent
        if not leaf.members and node is not None:
            self.put_in_place_of(node, node.children[1 - node.children.index(leaf)])
            node.gone = True

    def put_in_place_of(self, old: Place, new: Place) -> None:
        """Hang ``new`` where ``old`` hangs."""
        new.parent = old.parent
        if old.parent is None:
            self.root = new
        else:
            old.parent.children[old.parent.children.index(old)] = new

    def reroute(self, times: int) -> None:
        """REROUTE (Algorithm 7): send memories drawn uniformly down again from the root.

        The leaf a memory came from stays until it has arrived, maybe there again.
        """
        for _ in range(times if self.leaf_of else 0):
            memory = self.forest.memories[self.stream.below(len(self.leaf_of))]
            leaf = self.take_out(memory)
            self.insert_below(self.root, memory, len(self.leaf_of))
            self.collapse_if_empty(leaf)

    def learn_side(self, key: Key, node: Node, side: int, probability: float, reward: float) -> None:
        """UPDATE a router with the reward of an explored side (Algorithm 3, lines 4 to 6)."""
        alpha = self.forest.alpha
        estimate = reward / probability * (1 if side == RIGHT else -1)
        y = (1 - alpha) * estimate + alpha * node.balance()
        self.train(node, key, 1 if y > 0.0 else -1, abs(y))


class Forest:
    """A forest over one list of memories, with one scorer; its parameters are those of ``ContextualMemoryTree``."""

    def __init__(
        self,
        n_trees: int = 1,
        alpha: float = 0.9,
        leaf_multiplier: float = 4.0,
        n_reroutes: int = 5,
        router_loss: str = "squared",
        router_learning_rate: float = 2.0,
        scorer_loss: str = "ranking",
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
        self.trees = [Tree(self, stream) for stream in streams]
        self.memories: list[Memory] = []  # in the order in which REROUTE numbers them for its draws
        self.by_id: dict[int, Memory] = {}
        self.returned: list[Memory] = []  # those returned last at the end
        self.next_id = 0
        self.most_memories = 0  # that there ever were
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
        self.most_memories = max(self.most_memories, len(self.memories))
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
        patience after as many routers as the largest leaf that could ever be has memories.
        """
        patience = self.leaf_limit(self.most_memories)
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
        if self.scorer_loss == "ranking":
            self.rank_by_descent(gradient, gap, reward - lower_reward)
        else:
            self.rank_passively(gradient, gap, reward - lower_reward)

    def rank_by_descent(self, gradient: dict[int, float], gap: float, worth: float) -> None:
        """Take an AdaGrad step for the loss ``worth * log(1 + exp(-gap * STEEPNESS))``."""
        slope = -worth * STEEPNESS / (1 + math.exp(gap * STEEPNESS))
        for feature, part in gradient.items():
            square = self.theta_squares.get(feature, 0.0) + (slope * part) ** 2
            self.theta_squares[feature] = square
            step = self.scorer_learning_rate * slope * part / math.sqrt(square + TINY)
            self.theta[feature] = max(-1.0, self.theta.get(feature, 0.0) - step)

    def rank_passively(self, gradient: dict[int, float], gap: float, worth: float) -> None:
        """Widen the gap to ``MARGIN * worth`` by MIRA's step, or as far as the cap on it allows."""
        total = squared_length(gradient)
        if gap >= MARGIN * worth or total < TINY:
            return
        amount = min((MARGIN * worth - gap) / total, AGGRESSIVENESS * self.scorer_learning_rate)
        for feature, part in gradient.items():
            self.theta[feature] = max(-1.0, self.theta.get(feature, 0.0) + amount * part)

    def learn_reward(self, query: Key, memory: Memory, reward: float) -> None:
        """Train the scorer towards a reward: squared loss, AdaGrad."""
        slope = self.score(query, memory) - reward
        for feature, z in memory.key.items():
            gradient = slope * query.get(feature, 0.0) * z
            square = self.theta_squares.get(feature, 0.0) + gradient**2
            self.theta_squares[feature] = square
            step = self.scorer_learning_rate * gradient / math.sqrt(square + TINY)
            self.theta[feature] = self.theta.get(feature, 0.0) - step


def draw_members(leaf: Leaf, k: int, stream: SplitMix64) -> list[Memory]:
    """Draw ``k`` memories of a leaf uniformly without replacement, in one pass (selection sampling)."""
    drawn: list[Memory] = []
    wanted = min(k, len(leaf.members))
    for i, memory in enumerate(leaf.members):
        if stream.below(len(leaf.members) - i) < wanted - len(drawn):
            drawn.append(memory)
    return drawn
