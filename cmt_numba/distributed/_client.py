"""The client of a sharded store, which sends calls to shards and repeats them if the topology has changed."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..journal import JournalError
from ..store import Key
from ._actors import Actors, Replies, SentCalls
from ._calls import OtherTopology, Position, ShardFacts
from ._cluster import shards_running
from ._errors import ClusterError, NoAnswerError, PartialChangeError
from ._topology import Schema, Topology, common_schema, count_duplicates, pick, shards_behind

BLOCKS_AHEAD = 2  # number of blocks to send before waiting for the answer to the first one
_OWN = ("check_invariants", "sync")  # read-only calls that replicas cannot answer
_KEYS_AT_ONCE = 1 << 14  # maximum number of keys in a call that moves memories
_BYTES_AT_ONCE = 1 << 25  # maximum size in bytes of the vectors in a call
_ROWS_AT_ONCE = 1 << 14  # maximum number of vectors in a call

Arguments = Callable[[np.ndarray], Iterator[tuple[np.ndarray, tuple[Any, ...]]]]
"""A function of the positions of one shard's keys. It yields the positions and the arguments of each call."""


class Question(NamedTuple):
    """A read-only call for shards."""

    name: str
    calls: Callable[[Topology], Mapping[str, tuple[Any, ...]]]  # returns a mapping from shards to arguments
    keys: list[Key] = []  # noqa: RUF012 - keys of memories to move first if a move is in progress
    kind: tuple[Any, ...] = ()  # calls of the same kind need the same compiled kernels


class SentQuestion(NamedTuple):
    """A read-only call with pending answers."""

    question: Question
    topology: Topology
    sent: SentCalls


class ShardChange(NamedTuple):
    """A change for one shard."""

    shard: str
    positions: np.ndarray  # positions of the shard's keys among all keys of the change
    arguments: tuple[Any, ...]


class Survey(NamedTuple):
    """The schemas and sizes of a store's shards."""

    topology: Topology
    facts: dict[str, ShardFacts]  # facts[name]: the schema and size of a shard of the topology
    n_memories: int  # number of memories in all shards, each counted once

    def schema(self) -> Schema:
        """Return the schema of all memories."""
        return common_schema({name: facts.schema for name, facts in self.facts.items()})


class Client:
    """A client of a store's shards. Copies in other processes use the same shards."""

    def __init__(self, actors: Actors, topology: Topology, positions: dict[str, Position] | None = None) -> None:
        self._actors, self.topology, self.is_closed = actors, topology, False
        self._positions = positions or {}  # positions[shard]: its position after this client's last change

    def __reduce__(self) -> tuple[Any, ...]:
        return Client, (self._actors, self.topology, dict(self._positions))

    @property
    def actors(self) -> Actors:
        """The actors of the shards. Raises JournalError if the store is closed."""
        self.check_open()
        return self._actors

    def check_open(self) -> None:
        """Raise JournalError if the store is closed."""
        if self.is_closed:
            raise JournalError("the store is closed; open it again")

    # Topologies

    def _is_renewed(self, topology: Topology, answers: Replies) -> bool:
        """Return whether the topology of these calls was outdated. If it was, adopt the latest topology."""
        known = {name: value.topology for name, value in answers.values.items() if isinstance(value, OtherTopology)}
        gone = [name for name, error in answers.errors.items() if isinstance(error, ClusterError)]
        if gone:  # these shards may have been removed from the topology
            known |= self._later_topologies(topology, gone)
        if not known:
            return False
        latest = max([*known.values(), self.topology], key=lambda one: one.version)
        self.topology = latest
        behind = [name for name in known if known[name].version < latest.version and name in latest.names]
        if behind:
            self.actors.ask("adopt", dict.fromkeys(behind, (latest,)))
        return True

    def _later_topologies(self, topology: Topology, gone: list[str]) -> dict[str, Topology]:
        """Ask all running shards except ``gone`` for later topologies, and return the answers by shard.

        This finds the latest topology even if all shards of the given topology have been removed.
        """
        asked = set(gone)
        while names := set(shards_running(self.actors.cluster)) - asked:
            found = self.actors.ask("topology", dict.fromkeys(sorted(names), ())).values
            if later := {name: other for name, other in found.items() if other.version > topology.version}:
                return later
            asked |= names
        return {}

    def decide(self, before: Topology, following: Topology) -> None:
        """Propose the topology ``following`` to the first shard, and adopt the topology that the shard decides on."""
        first = before.names[0]
        answers = self.actors.ask("decide", {first: (before.version, following)})
        if not self._is_renewed(before, answers):
            known: Topology = self.complete(answers)[first]
            self.topology = max(known, self.topology, key=lambda one: one.version)

    def agree(self, new: Schema) -> None:
        """Make the shards agree on a schema that admits new memories with schema ``new``.

        The topology contains the schema, and shards add memories only after the schema is complete. The stored memories
        determine some of its fields, and the first client to add memories determines the other fields.
        """
        while not self.topology.schema.admits(new):
            survey = self.survey()
            schema, found = survey.topology.schema, survey.schema()
            if schema.admits(new):
                return
            found.check(new)
            undecided = Schema(metric=found.metric)  # the schema of an empty store
            self.decide(survey.topology, survey.topology.with_schema(undecided if schema.key_type else found | new))

    def settled(self, keys: list[Key], new: Schema | None = None) -> Topology:
        """Return a topology that admits memories with schema ``new``, after finishing the move of ``keys``."""
        while True:
            if new is not None:
                self.agree(new)
            topology = self.topology
            if not topology.is_moving or self._are_moved(topology, keys):
                return topology

    def _are_moved(self, topology: Topology, keys: list[Key]) -> bool:
        """Move the memories with these keys to their new shards. Return False if the topology is outdated."""
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[first : first + _KEYS_AT_ONCE]
            leaving = topology.leaving(some)
            answers = self.actors.ask(
                "give", {name: (topology.move, pick(some, part)) for name, part in leaving.items()}
            )
            if self._is_renewed(topology, answers):
                return False
            self.complete(answers)
        return True

    def advance_topology(self, following: Callable[[Topology], Topology | None]) -> Topology:
        """Propose what ``following`` returns for the latest topology until it is None; return the latest."""
        while (topology := following(before := self.topology)) is not None:
            self.decide(before, topology)
        return self.topology

    def tell(self, topology: Topology, names: Iterable[str]) -> Topology:
        """Send a topology to the named shards. Return the latest topology that any of them has afterwards."""
        known: list[Topology] = list(
            self.complete(self.actors.ask("adopt", dict.fromkeys(names, (topology,)))).values()
        )
        return max([topology, *known], key=lambda one: one.version)

    # Read-only calls

    def send(self, question: Question) -> SentQuestion:
        """Send a read-only call to each shard or to its least busy replica."""
        topology = self.settled(question.keys)
        calls, kind = self._reads(question, topology), (question.name, *question.kind)
        sent = self.actors.send("read", calls, kind, also_replicas=question.name not in _OWN)
        return SentQuestion(question, topology, sent)

    def _reads(self, question: Question, topology: Topology) -> dict[str, tuple[Any, ...]]:
        """Return the arguments of a read-only call by shard.

        The arguments include the position of this client's last change, which a replica must have reached to answer.
        """
        return {
            name: (topology.version, self._positions.get(name, (0, 0)), question.name, *arguments)
            for name, arguments in question.calls(topology).items()
        }

    def gather(self, asked: SentQuestion) -> tuple[Topology, Replies]:
        """Return the topology and the answers, each a :class:`Reply`. Repeat calls during which memories have moved."""
        while True:
            question, topology, sent = asked
            answers = self.actors.gather(sent)
            is_renewed = self._is_renewed(topology, answers)
            while not is_renewed:
                names = shards_behind({name: read.progress for name, read in answers.values.items()})
                if not names:
                    return topology, answers
                calls = self._reads(question, topology)
                again = {name: calls[name] for name in names}  # not sent to replicas, which may be behind
                later = self.actors.ask("read", again, (question.name, *question.kind))
                is_renewed = self._is_renewed(topology, later)
                values = {name: read for name, read in answers.values.items() if name not in names} | later.values
                answers = Replies(values, answers.errors | later.errors, sorted({*answers.missing, *later.missing}))
            asked = self.send(question)

    def ask(self, question: Question) -> dict[str, Any]:
        """Return the answers to a read-only call by shard name."""
        reads = self.complete(self.gather(self.send(question))[1])
        return {name: read.value for name, read in reads.items()}

    def ask_all(self, name: str, *arguments: Any) -> list[Any]:
        """Return the answers of all shards, in the order of their names."""
        values = self.ask(Question(name, lambda topology: dict.fromkeys(topology.names, arguments)))
        return list(values.values())

    def ask_owners(self, name: str, keys: list[Key], *arguments: Any) -> list[tuple[np.ndarray, Any]]:
        """Send a read-only call to the shards that own keys. Return each shard's key positions and answer."""
        parts: dict[str, np.ndarray] = {}

        def calls(topology: Topology) -> dict[str, tuple[Any, ...]]:
            nonlocal parts
            parts = topology.divided(keys)
            return {shard: (pick(keys, part), *arguments) for shard, part in parts.items()}

        return [(parts[shard], value) for shard, value in self.ask(Question(name, calls, keys)).items()]

    def call_one(self, shard: str, method: str, *arguments: Any) -> Any:
        """Call a method of one shard and return the answer."""
        return self.complete(self.actors.ask(method, {shard: arguments}))[shard]

    def complete(self, answers: Replies) -> dict[str, Any]:
        """Return the answers sorted by shard name, or raise the first error or NoAnswerError."""
        values = answers.all_values()
        if answers.missing:
            raise NoAnswerError(answers.missing, "try again, or open the store with a larger timeout")
        return {name: values[name] for name in sorted(values)}

    def survey(self) -> Survey:
        """Return the schemas and sizes of the shards."""
        question = Question("facts", lambda topology: dict.fromkeys(topology.names, ()))
        topology, answers = self.gather(self.send(question))
        reads = self.complete(answers)
        facts = {name: reads[name].value for name in topology.names}
        n_duplicates = count_duplicates({name: read.progress for name, read in reads.items()})
        return Survey(topology, facts, sum(own.n_memories for own in facts.values()) - n_duplicates)

    # Changes

    def change(
        self, name: str, keys: list[Key], arguments: Arguments, kind: tuple[Any, ...] = (), new: Schema | None = None
    ) -> None:
        """Send a change to the shards that own its keys.

        Calls to the same shard run in order. ``new`` is the schema of new memories. Raise NoAnswerError if no shard
        answered in time, and PartialChangeError if the change was made in some shards only; it may still be made. Raise
        the error of a shard if the change was made in none.
        """
        outcome = _Outcome()
        left = np.arange(len(keys))
        while left.size > 0 and not outcome.reasons:
            try:
                topology = self.settled(pick(keys, left), new)
            except Exception as error:
                if not outcome.made:
                    raise
                outcome.not_made.append(left)
                outcome.reasons["the move of memories"] = error
                break
            changes = []
            for shard, part in topology.divided(pick(keys, left)).items():
                changes += [ShardChange(shard, positions, own) for positions, own in arguments(left[part])]
            left = self._make(topology, name, changes, kind, outcome)
        outcome.raise_what_failed(keys)

    def _make(
        self, topology: Topology, name: str, changes: list[ShardChange], kind: tuple[Any, ...], outcome: "_Outcome"
    ) -> np.ndarray:
        """Send changes to shards. Return the positions of keys whose shards rejected the topology."""
        actors, rounds = self.actors, _in_rounds(changes)
        refused = [np.empty(0, np.int64)]

        def gather(together: list[ShardChange], sent: SentCalls) -> None:
            answers = actors.gather(sent)
            is_renewed = self._is_renewed(topology, answers)
            for shard, positions, _ in together:
                value = answers.values.get(shard)
                if isinstance(value, OtherTopology):
                    found = refused
                elif value is not None:
                    found = outcome.made
                    self._positions[shard] = max(self._positions.get(shard, (0, 0)), value)
                elif is_renewed and isinstance(answers.errors.get(shard), ClusterError):  # the shard was removed
                    found = refused
                else:
                    found = outcome.not_made if shard in answers.errors else outcome.unknown
                    reason = answers.errors.get(shard, NoAnswerError([shard], "it may still make the change"))
                    outcome.reasons[shard] = reason
                found.append(positions)

        under_way: deque[tuple[list[ShardChange], SentCalls]] = deque()
        for number, together in enumerate(rounds):
            calls = {shard: (topology.version, uuid4().hex, name, *own) for shard, _, own in together}
            under_way.append((together, actors.send("change", calls, (name, *kind))))
            if len(under_way) > BLOCKS_AHEAD:
                gather(*under_way.popleft())
            if outcome.reasons:
                outcome.not_made += [change.positions for later in rounds[number + 1 :] for change in later]
                break
        while under_way:
            gather(*under_way.popleft())
        return np.sort(np.concatenate(refused))

    def change_all(self, name: str, *arguments: Any) -> None:
        """Make a change in all shards. If the topology changes, a shard may make the change twice."""
        while True:
            topology = self.topology
            calls = {shard: (topology.version, uuid4().hex, name, *arguments) for shard in topology.names}
            answers = self.actors.ask("change", calls, (name,))
            if not self._is_renewed(topology, answers):
                self.complete(answers)
                return


class _Outcome:
    """The outcome of a change, as positions of keys and the errors of shards."""

    def __init__(self) -> None:
        self.made: list[np.ndarray] = []  # keys for which the change was made
        self.not_made: list[np.ndarray] = []  # keys for which the change failed
        self.unknown: list[np.ndarray] = []  # keys of shards that did not answer
        self.reasons: dict[str, Exception] = {}  # reasons[shard]: the error

    def raise_what_failed(self, keys: list[Key]) -> None:
        """Raise an error if any shard failed or did not answer."""
        if not self.reasons:
            return
        if not self.made and not self.unknown:
            raise next(iter(self.reasons.values()))
        if not self.made and not self.not_made:
            message = "the change may still take effect; upsert and delete can safely be repeated"
            raise NoAnswerError(list(self.reasons), message)
        made, not_made, unknown = (
            [key for positions in parts for key in pick(keys, positions)]
            for parts in (self.made, self.not_made, self.unknown)
        )
        raise PartialChangeError(made, not_made, unknown, self.reasons)


def _in_rounds(changes: list[ShardChange]) -> list[list[ShardChange]]:
    """Divide changes into rounds that contain at most one change per shard. Keep the order of each shard's changes."""
    of_shards: dict[str, list[ShardChange]] = {}
    for change in changes:
        of_shards.setdefault(change.shard, []).append(change)
    return [[change for change in together if change is not None] for together in zip_longest(*of_shards.values())]


def blocks_of_rows(X: Any, n: int) -> Iterator[slice]:
    """Yield slices of ``n`` rows that are small enough to send in one call. ``X`` are their vectors, or None."""
    n_bytes = 0 if X is None else X.data.nbytes if hasattr(X, "indptr") else X.nbytes
    size = max(1, min(_ROWS_AT_ONCE, int(_BYTES_AT_ONCE / max(1.0, n_bytes / n))))
    yield from (slice(first, min(first + size, n)) for first in range(0, n, size))
