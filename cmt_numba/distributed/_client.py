"""Clients of a sharded store: they send read-only calls and changes to shards, even while memories move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..journal import JournalError
from ..store import Key
from ._actors import Actors, Replies, SentCalls
from ._calls import OtherTopology, Position, ShardFacts
from ._cluster import running, shards_running
from ._errors import ClusterError, NoAnswerError, PartialChangeError
from ._exchange import combine_weights
from ._schema import Schema, common_schema
from ._topology import Topology, count_duplicates, pick, shards_behind

BLOCKS_AHEAD = 2  # number of blocks sent before waiting for an earlier answer
_OWN = ("learned", "recall", "calibrate", "check_invariants", "sync")  # read-only calls for shards, never for replicas
_KEYS_AT_ONCE = 1 << 14  # maximum number of keys in one call that moves memories
_BYTES_AT_ONCE = 1 << 25  # maximum size of the vectors in one call
_ROWS_AT_ONCE = 1 << 14

Arguments = Callable[[np.ndarray], Iterator[tuple[np.ndarray, tuple[Any, ...]]]]
"""Divides the keys of one shard among calls: takes their positions, and yields positions and arguments of each call."""


class Question(NamedTuple):
    """A read-only call for shards."""

    name: str
    calls: Callable[[Topology], Mapping[str, tuple[Any, ...]]]  # returns the arguments for each shard
    keys: list[Key] = []  # noqa: RUF012 - a field: keys whose memories are moved first if a move is in progress
    kind: tuple[Any, ...] = ()  # calls of one kind need the same compiled functions


class SentQuestion(NamedTuple):
    """A read-only call with pending answers."""

    question: Question
    topology: Topology
    sent: SentCalls


class ShardChange(NamedTuple):
    """A change for one shard."""

    shard: str
    positions: np.ndarray  # positions of the keys
    arguments: tuple[Any, ...]


class Survey(NamedTuple):
    """Schemas and sizes of the shards of a store."""

    topology: Topology
    facts: dict[str, ShardFacts]  # of the shards of the topology, by their names
    n_memories: int

    def schema(self) -> Schema:
        """Return the schema of all memories.

        Raises
        ------
        ShardConflictError
            If the memories of shards cannot be in one store.
        """
        return common_schema({name: facts.schema for name, facts in self.facts.items()})


class Client:
    """A connection to the shards of a store. Copies in other processes use the same shards."""

    def __init__(self, actors: Actors, topology: Topology, positions: dict[str, Position] | None = None) -> None:
        self._actors, self.topology, self.is_closed = actors, topology, False
        self._positions = positions or {}  # positions of shards after the last changes of this client

    def __reduce__(self) -> tuple[Any, ...]:
        return Client, (self._actors, self.topology, dict(self._positions))

    @property
    def actors(self) -> Actors:
        """The actors of the shards, unless the store is closed."""
        self.check_open()
        return self._actors

    def check_open(self) -> None:
        """Raise JournalError if the store is closed."""
        if self.is_closed:
            raise JournalError("the store is closed; open it again")

    # Topologies

    def _is_renewed(self, topology: Topology, answers: Replies) -> bool:
        """Return whether shards have rejected calls with an outdated topology; if so, adopt the latest one."""
        known = {name: value.topology for name, value in answers.values.items() if isinstance(value, OtherTopology)}
        gone = [name for name, error in answers.errors.items() if isinstance(error, ClusterError)]
        if gone:  # perhaps because they were removed from the topology
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
        """Return later topologies by shard, even if all shards of the given topology have left."""
        asked = set(gone)
        while names := set(shards_running(self.actors.cluster)) - asked:
            found = self.actors.ask("topology", dict.fromkeys(sorted(names), ())).values
            if later := {name: other for name, other in found.items() if other.version > topology.version}:
                return later
            asked |= names
        return {}

    def decide(self, before: Topology, following: Topology) -> None:
        """Propose the next topology to the first shard, and adopt the one that the shard has decided on."""
        first = before.names[0]
        answers = self.actors.ask("decide", {first: (before.version, following)})
        if not self._is_renewed(before, answers):
            known: Topology = self.complete(answers)[first]
            self.topology = max(known, self.topology, key=lambda one: one.version)

    def agree(self, new: Schema) -> None:
        """Have the shards agree on the schema of new memories.

        The topology contains the schema. Until the schema is complete, no shard adds memories. The stored memories
        determine part of the schema, and the first client determines the rest.

        Raises
        ------
        TypeError, ValueError
            If memories with this schema cannot be added.
        ShardConflictError
            If the shards hold incompatible memories.
        """
        while not self.topology.schema.admits(new):
            survey = self.survey()
            schema, found = survey.topology.schema, survey.schema()
            if schema.admits(new):
                return
            found.check(new)
            undecided = Schema(metric=found.metric)  # the schema of an empty store
            self.decide(survey.topology, survey.topology.with_schema(undecided if schema.is_complete else found | new))

    def settled(self, keys: list[Key], new: Schema | None = None) -> Topology:
        """Return a topology that admits memories of schema ``new`` and in which none of these memories will move."""
        while True:
            if new is not None:
                self.agree(new)
            topology = self.topology
            if not topology.is_moving or self._are_moved(topology, keys):
                return topology

    def _are_moved(self, topology: Topology, keys: list[Key]) -> bool:
        """Move memories to the shards to which they belong; return False if the topology is no longer valid."""
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

    def go_over(self, following: Callable[[Topology], Topology | None]) -> Topology:
        """Fetch topologies from the first shard until there is no later one, and return the latest."""
        while (topology := following(before := self.topology)) is not None:
            self.decide(before, topology)
        return self.topology

    def tell(self, topology: Topology, names: Iterable[str]) -> Topology:
        """Have shards adopt a topology unless they have a later one; return the latest topology of these shards."""
        known: list[Topology] = list(
            self.complete(self.actors.ask("adopt", dict.fromkeys(names, (topology,)))).values()
        )
        return max([topology, *known], key=lambda one: one.version)

    # Read-only calls

    def send(self, question: Question) -> SentQuestion:
        """Send a read-only call to shards, or to replicas that are less busy."""
        topology = self.settled(question.keys)
        calls, kind = self._reads(question, topology), (question.name, *question.kind)
        sent = self.actors.send("read", calls, kind, also_replicas=question.name not in _OWN)
        return SentQuestion(question, topology, sent)

    def _reads(self, question: Question, topology: Topology) -> dict[str, tuple[Any, ...]]:
        """Return the arguments of a read-only call by shard. A replica must have applied this client's changes."""
        return {
            name: (topology.version, self._positions.get(name, (0, 0)), question.name, *arguments)
            for name, arguments in question.calls(topology).items()
        }

    def gather(self, asked: SentQuestion) -> tuple[Topology, Replies]:
        """Wait for answers, each a :class:`Reply`, and repeat the call if memories have moved in the meantime."""
        while True:
            question, topology, sent = asked
            answers = self.actors.gather(sent)
            is_renewed = self._is_renewed(topology, answers)
            while not is_renewed:
                names = shards_behind({name: read.progress for name, read in answers.values.items()})
                if not names:
                    return topology, answers
                calls = self._reads(question, topology)
                again = {
                    name: calls[name] for name in names
                }  # sent to the shards themselves, which have the current state
                later = self.actors.ask("read", again, (question.name, *question.kind))
                is_renewed = self._is_renewed(topology, later)
                values = {name: read for name, read in answers.values.items() if name not in names} | later.values
                answers = Replies(values, answers.errors | later.errors, sorted({*answers.missing, *later.missing}))
            asked = self.send(question)

    def ask(self, question: Question) -> dict[str, Any]:
        """Return the answers of shards by name."""
        reads = self.complete(self.gather(self.send(question))[1])
        return {name: read.value for name, read in reads.items()}

    def ask_all(self, name: str, *arguments: Any) -> list[Any]:
        """Return the answers of all shards, in their order."""
        values = self.ask(Question(name, lambda topology: dict.fromkeys(topology.names, arguments)))
        return list(values.values())

    def ask_owners(self, name: str, keys: list[Key]) -> list[tuple[np.ndarray, Any]]:
        """Send a read-only call to the owners of keys; return the key positions and the answer of each owner."""
        parts: dict[str, np.ndarray] = {}

        def calls(topology: Topology) -> dict[str, tuple[Any, ...]]:
            nonlocal parts
            parts = topology.divided(keys)
            return {shard: (pick(keys, part),) for shard, part in parts.items()}

        return [(parts[shard], value) for shard, value in self.ask(Question(name, calls, keys)).items()]

    def call_one(self, shard: str, method: str, *arguments: Any) -> Any:
        """Call a method of one shard."""
        return self.complete(self.actors.ask(method, {shard: arguments}))[shard]

    def complete(self, answers: Replies) -> dict[str, Any]:
        """Return the values of all called shards in order, or raise the error of one."""
        values = answers.all_values()
        if answers.missing:
            raise NoAnswerError(answers.missing, "try again, or open the store with a larger timeout")
        return {name: values[name] for name in sorted(values)}

    def survey(self) -> Survey:
        """Return schemas and sizes of the shards."""
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
        """Send a change to the owners of keys.

        Calls to one shard are made in order. ``new`` is the schema of new memories.

        Raises
        ------
        NoAnswerError
            If no shard answered in time, and it is unknown whether the change was made.
        PartialChangeError
            If only part of the change was made.
        Exception
            The error of a shard, if nothing has changed.
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
        self, topology: Topology, name: str, changes: list[ShardChange], kind: tuple[Any, ...], outcome: _Outcome
    ) -> np.ndarray:
        """Send changes to shards; return the positions of keys whose shards have another topology."""
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
                    self._positions[shard] = max(self._positions.get(shard, (0, 0)), value.position)
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
        """Have all shards make a change that may be repeated."""
        while True:
            topology = self.topology
            calls = {shard: (topology.version, uuid4().hex, name, *arguments) for shard in topology.names}
            answers = self.actors.ask("change", calls, (name,))
            if not self._is_renewed(topology, answers):
                self.complete(answers)
                return

    def exchange(self) -> bool:
        """Make shards exchange what they have learned from rewards; return False if some cannot do so now."""
        with suppress(NoAnswerError, ClusterError):
            found = self.ask(Question("learned", lambda topology: dict.fromkeys(topology.names, ())))
            known = {name: own for name, own in found.items() if own is not None}
            topology = self.topology
            if not known or not known.keys() <= set(topology.names) or not topology.schema.is_complete:
                return False
            number, base = combine_weights(known.values())
            request = uuid4().hex, "exchange", number, running().put(base)
            calls = {name: (topology.version, *request, own.gain) for name, own in known.items()}
            answers = self.actors.ask("change", calls, ("exchange",))
            if not self._is_renewed(topology, answers):
                self.complete(answers)
                return True
        return False


class _Outcome:
    """The outcome of a change: positions of the keys for which it was made, and errors of shards."""

    def __init__(self) -> None:
        self.made: list[np.ndarray] = []
        self.not_made: list[np.ndarray] = []
        self.unknown: list[np.ndarray] = []
        self.reasons: dict[str, Exception] = {}

    def raise_what_failed(self, keys: list[Key]) -> None:
        """Raise an error if any part of the change has failed."""
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
    """Return changes in rounds with at most one change for each shard."""
    rounds: list[list[ShardChange]] = []
    n_of: dict[str, int] = {}
    for change in changes:
        number = n_of.get(change.shard, 0)
        n_of[change.shard] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(change)
    return rounds


def blocks_of_rows(X: Any) -> Iterator[slice]:
    """Yield slices of rows, each to send in one call."""
    n = X.shape[0]
    n_bytes = X.data.nbytes if hasattr(X, "indptr") else X.nbytes
    size = max(1, min(_ROWS_AT_ONCE, int(_BYTES_AT_ONCE / max(1.0, n_bytes / n))))
    yield from (slice(first, min(first + size, n)) for first in range(0, n, size))
