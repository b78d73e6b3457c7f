"""One tree: insert, split, remove, reroute, and learn."""

import math
from typing import TYPE_CHECKING

from ._nodes import LEFT, RIGHT, TINY, Key, Leaf, Memory, Node, Place, memories_below, squared_length
from ._random import SplitMix64

if TYPE_CHECKING:
    from ._forest import Forest

SPLIT_PASSES = 5
POWER_ROUNDS, LEAST_SPREAD, NUDGE = 2, 1e-6, 0.01
CLOSE_ENOUGH = 0.1


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

    def split(self, leaf: Leaf) -> Node:
        """Put a node with two leaves in a full leaf's place (INSERTLEAF, Algorithm 5, lines 3 to 7).

        The fresh router is aimed at the principal direction of the memories, and then sees them several times. If it
        sends all one way, its threshold moves to the middle of their margins; if it still does, every second one goes
        right. The leaf itself becomes the left child, so a memory on its way back to it still knows it.
        """
        node = Node()
        self.put_in_place_of(leaf, node)
        members = leaf.members
        self.aim(node, [memory.key for memory in members])
        for _ in range(SPLIT_PASSES):
            node.below = [0, 0]
            for memory in members:
                node.below[self.teach(node, memory.key)] += 1
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

    def aim(self, node: Node, keys: list[Key]) -> None:
        """Aim a fresh router at the principal direction of keys (power method), with a mean absolute margin of 1."""
        mean = {feature: sum(key.get(feature, 0.0) for key in keys) / len(keys) for key in keys for feature in key}

        def center() -> float:
            if squared_length(mean) > LEAST_SPREAD / len(keys) ** 2:
                excess = sum(map(node.margin, keys)) / len(keys) / squared_length(mean)
                for feature, x in mean.items():
                    node.weights[feature] -= excess * x
            return sum(abs(node.margin(key)) for key in keys) / len(keys)

        node.weights = dict.fromkeys((feature for key in keys for feature in key), 0.0) | keys[0]
        for feature, x in min(keys, key=node.margin).items():
            node.weights[feature] -= x
        for _ in range(POWER_ROUNDS):
            margins = [node.margin(key) for key in keys]
            behind = [margin - sum(margins) / len(keys) for margin in margins]
            if not any(behind):
                break
            total = dict.fromkeys(node.weights, 0.0)
            for margin, key in zip(behind, keys, strict=True):
                for feature, x in key.items():
                    total[feature] += margin * x / sum(map(abs, behind))
            node.weights = total
        spread = center()
        if spread < LEAST_SPREAD:
            node.weights = {}
            return
        node.bias = NUDGE
        node.weights = {feature: weight / spread for feature, weight in node.weights.items()}
        for key in keys:
            node.bias_square += 1.0
            for feature, x in key.items():
                node.squares[feature] = node.squares.get(feature, 0.0) + x * x

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
