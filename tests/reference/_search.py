"""The search of leaves: a frontier of places."""

from ._nodes import Key, Leaf, Node, Place

SURE = 0.75


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
