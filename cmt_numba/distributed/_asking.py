"""How a client asks the shards of a store and has them make changes, also while memories move between shards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..journal import JournalError
from ..store._checks import Key
from ._actors import Actors, Answers, Sent
from ._arguments import picked
from ._cluster import running, shards_running
from ._errors import ClusterError, NoAnswerError, PartialChangeError
from ._learned import combined
from ._reading import Facts, Position, Refused
from ._schema import Schema, common_schema
from ._topology import Topology, late, n_twice

BLOCKS_AHEAD = 2  # that are under way beside the one that is waited for
_OWN = ("learned", "recall", "sync", "process")  # questions for shards, but not for replicas
_KEYS_AT_ONCE = 1 << 14  # whose memories are moved because they are asked for

Arguments = Callable[[np.ndarray], Iterator[tuple[np.ndarray, tuple[Any, ...]]]]
"""Divides positions of keys, all of one shard, among calls: yields the positions and the arguments of each."""


class Question(NamedTuple):
    """What is asked of shards.

    Attributes
    ----------
    name : str
        The name of the method.
    calls : function
        Returns the arguments for each shard that is asked.
    keys : list of keys
        The keys that it is about; those that move are moved first.
    kind : tuple
        What distinguishes it from others that need other compiled functions.
    """

    name: str
    calls: Callable[[Topology], Mapping[str, tuple[Any, ...]]]
    keys: list[Key] = []  # noqa: RUF012 - a field
    kind: tuple[Any, ...] = ()


class Asked(NamedTuple):
    """A question that was sent."""

    question: Question
    topology: Topology
    sent: Sent


class Change(NamedTuple):
    """A change that one shard is to make."""

    shard: str
    positions: np.ndarray  # of the keys
    arguments: tuple[Any, ...]


class Asking:
    """The part of a client that knows the shards."""

    def _connect(self, actors: Actors, topology: Topology, path: Path | None) -> None:
        self._actors, self._topology, self._folder = actors, topology, path
        self._positions: dict[str, Position] = {}  # that shards had after the last changes of this client
        self._exchange_every: int | None = None
        self._n_rewards = 0  # that this client has given since the last exchange
        self._is_closed = False

    def _open_actors(self) -> Actors:
        if self._is_closed:
            raise JournalError("the store is closed; open it again")
        return self._actors

    # Topologies

    def _is_renewed(self, topology: Topology, answers: Answers) -> bool:
        """Return whether shards have refused calls because of their topology; go over to the latest then."""
        known = {name: value.topology for name, value in answers.values.items() if isinstance(value, Refused)}
        gone = [name for name, error in answers.errors.items() if isinstance(error, ClusterError)]
        if gone:  # perhaps because they have left
            known |= self._later_topologies(topology, gone)
        if not known:
            return False
        latest = max([*known.values(), self._topology], key=lambda one: one.version)
        self._topology = latest
        behind = [name for name in known if known[name].version < latest.version and name in latest.names]
        if behind:
            self._actors.ask("adopt", dict.fromkeys(behind, (latest,)))
        return True

    def _later_topologies(self, topology: Topology, gone: list[str]) -> dict[str, Topology]:
        """Return topologies later than one, by the shards that know them. All shards of that one may have left."""
        asked = set(gone)
        while names := set(shards_running(self._actors.cluster)) - asked:
            found = self._actors.ask("topology", dict.fromkeys(sorted(names), ())).values
            if later := {name: other for name, other in found.items() if other.version > topology.version}:
                return later
            asked |= names
        return {}

    def _decide(self, topology: Topology, following: Topology) -> bool:
        """Have the first shard decide which topology follows; return whether it is this one."""
        first = topology.names[0]
        answers = self._open_actors().ask("decide", {first: (topology.version, following)})
        if not self._is_renewed(topology, answers):
            known: Topology = self._complete(answers)[first]
            self._topology = max(known, self._topology, key=lambda one: one.version)
        return self._topology == following

    def _agree(self, new: Schema) -> None:
        """Have all shards agree on the schema of memories that are to be added.

        The topology says what has been agreed on. No shard adds anything while a part of it is undecided, so what the
        shards hold then is what they must agree on. If they hold nothing that contradicts, the first client decides.

        Raises
        ------
        TypeError, ValueError
            If such memories cannot be added.
        ShardConflictError
            If the shards themselves do not fit together.
        """
        while not self._topology.schema.admits(new):
            topology, facts, _ = self._survey()
            if topology.schema.admits(new):
                return
            found = common_schema({name: fact.schema for name, fact in facts.items()})
            found.check(new)
            undecided = Schema(metric=found.metric)
            self._decide(topology, topology.with_schema(undecided if topology.schema.is_complete else found | new))

    def _settled(self, keys: list[Key], new: Schema | None = None) -> Topology:
        """Return the topology, in which none of these keys is about to move, and such memories can be added."""
        while True:
            actors = self._open_actors()
            if new is not None:
                self._agree(new)
            topology = self._topology
            if not topology.is_moving:
                return topology
            is_renewed = False
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                some = keys[first : first + _KEYS_AT_ONCE]
                leaving = topology.leaving(some)
                calls = {name: (topology.move, picked(some, part)) for name, part in leaving.items()}
                answers = actors.ask("give", calls)
                if self._is_renewed(topology, answers):
                    is_renewed = True
                    break
                self._complete(answers)
            if not is_renewed:
                return topology

    # Questions

    def _send(self, question: Question) -> Asked:
        topology = self._settled(question.keys)
        calls = self._reads(question, topology)
        sent = self._actors.send(
            "read", calls, (question.name, *question.kind), also_replicas=question.name not in _OWN
        )
        return Asked(question, topology, sent)

    def _reads(self, question: Question, topology: Topology) -> dict[str, tuple[Any, ...]]:
        """Return the arguments of the calls that ask a question. A replica must have made this client's changes."""
        return {
            name: (topology.version, self._positions.get(name, (0, 0)), question.name, *arguments)
            for name, arguments in question.calls(topology).items()
        }

    def _gather(self, asked: Asked) -> tuple[Topology, Answers]:
        """Wait for answers; ask again where memories have moved meanwhile. The values are of :class:`Read`."""
        while True:
            question, topology, sent = asked
            answers = self._actors.gather(sent)
            is_renewed = self._is_renewed(topology, answers)
            while not is_renewed and (names := late({name: read.moved for name, read in answers.values.items()})):
                calls = self._reads(question, topology)
                again = {name: calls[name] for name in names}  # of the shards themselves, which know what they have
                later = self._actors.ask("read", again, (question.name, *question.kind))
                is_renewed = self._is_renewed(topology, later)
                values = {name: read for name, read in answers.values.items() if name not in names} | later.values
                answers = Answers(values, answers.errors | later.errors, sorted({*answers.missing, *later.missing}))
            if not is_renewed:
                return topology, answers
            asked = self._send(question)

    def _ask(self, question: Question) -> dict[str, Any]:
        """Return what the shards that are asked answer, by their names."""
        reads = self._complete(self._gather(self._send(question))[1])
        return {name: read.value for name, read in reads.items()}

    def _ask_all(self, name: str, *arguments: Any) -> list[Any]:
        """Return the answers of all shards, in their order."""
        values = self._ask(Question(name, lambda topology: dict.fromkeys(topology.names, arguments)))
        return list(values.values())

    def _ask_owners(self, name: str, keys: list[Key]) -> list[tuple[np.ndarray, Any]]:
        """Ask the owners of keys; return the positions of the keys of each and its answer."""
        parts: dict[str, np.ndarray] = {}

        def calls(topology: Topology) -> dict[str, tuple[Any, ...]]:
            nonlocal parts
            parts = topology.divided(keys)
            return {shard: (picked(keys, part),) for shard, part in parts.items()}

        return [(parts[shard], value) for shard, value in self._ask(Question(name, calls, keys)).items()]

    def _complete(self, answers: Answers) -> dict[str, Any]:
        """Return the values of all shards that were asked, in their order; raise what one has raised."""
        values = answers.all_values()
        if answers.missing:
            raise NoAnswerError(answers.missing, "ask again, or give the store a larger timeout")
        return {name: values[name] for name in sorted(values)}

    def _survey(self) -> tuple[Topology, dict[str, Facts], int]:
        """Return a topology, what each of its shards holds, and the number of memories."""
        question = Question("facts", lambda topology: dict.fromkeys(topology.names, ()))
        topology, answers = self._gather(self._send(question))
        reads = self._complete(answers)
        facts = {name: reads[name].value for name in topology.names}
        n_memories = sum(fact.n_memories for fact in facts.values())
        return topology, facts, n_memories - n_twice({name: read.moved for name, read in reads.items()})

    # Changes

    def _change(
        self, name: str, keys: list[Key], arguments: Arguments, kind: tuple[Any, ...] = (), new: Schema | None = None
    ) -> None:
        """Have the owners of keys make a change, each its calls one after the other; ``new`` is of added memories.

        Raises
        ------
        NoAnswerError
            If none was made as far as is known, because no shard answered in time.
        PartialChangeError
            If some were made and others not.
        Exception
            What a shard has raised, if nothing was changed.
        """
        outcome = _Outcome()
        left = np.arange(len(keys))
        while left.size > 0 and not outcome.reasons:
            try:
                topology = self._settled(picked(keys, left), new)
            except Exception as error:
                if not outcome.made:
                    raise
                outcome.not_made.append(left)
                outcome.reasons["the move of memories"] = error
                break
            changes = []
            for shard, part in topology.divided(picked(keys, left)).items():
                changes += [Change(shard, positions, own) for positions, own in arguments(left[part])]
            left = self._make(topology, name, changes, kind, outcome)
        outcome.raise_what_failed(keys)

    def _make(
        self, topology: Topology, name: str, changes: list[Change], kind: tuple[Any, ...], outcome: _Outcome
    ) -> np.ndarray:
        """Have shards make changes; return the positions of the keys whose shards know another topology."""
        actors, rounds = self._open_actors(), _in_rounds(changes)
        refused = [np.empty(0, np.int64)]

        def gather(together: list[Change], sent: Sent) -> None:
            answers = actors.gather(sent)
            is_renewed = self._is_renewed(topology, answers)
            for shard, positions, _ in together:
                value = answers.values.get(shard)
                if isinstance(value, Refused):
                    found = refused
                elif value is not None:
                    found = outcome.made
                    self._positions[shard] = max(self._positions.get(shard, (0, 0)), value.position)
                elif is_renewed and isinstance(answers.errors.get(shard), ClusterError):  # it has left
                    found = refused
                else:
                    found = outcome.not_made if shard in answers.errors else outcome.unknown
                    reason = answers.errors.get(shard, NoAnswerError([shard], "it may still make the change"))
                    outcome.reasons[shard] = reason
                found.append(positions)

        under_way: deque[tuple[list[Change], Sent]] = deque()
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

    def _change_all(self, name: str, *arguments: Any) -> None:
        """Have all shards make a change that does no harm if it is made again."""
        while True:
            topology = self._topology
            calls = {shard: (topology.version, uuid4().hex, name, *arguments) for shard in topology.names}
            answers = self._open_actors().ask("change", calls, (name,))
            if not self._is_renewed(topology, answers):
                self._complete(answers)
                return

    def _exchange(self) -> None:
        """Have shards exchange what they have learned; nothing happens if some of them do not answer."""
        with suppress(NoAnswerError, ClusterError):
            found = self._ask(Question("learned", lambda topology: dict.fromkeys(topology.names, ())))
            known = {name: own for name, own in found.items() if own is not None}
            topology = self._topology
            if not known or not known.keys() <= set(topology.names) or not topology.schema.is_complete:
                return
            number, base = combined(known.values())
            shared = running().put(base)
            calls = {
                name: (topology.version, uuid4().hex, "exchange", number, shared, own.gain)
                for name, own in known.items()
            }
            answers = self._actors.ask("change", calls, ("exchange",))
            if not self._is_renewed(topology, answers):
                self._complete(answers)
                self._n_rewards = 0


class _Outcome:
    """What has become of a change: positions of keys, and what shards have raised."""

    def __init__(self) -> None:
        self.made: list[np.ndarray] = []
        self.not_made: list[np.ndarray] = []
        self.unknown: list[np.ndarray] = []
        self.reasons: dict[str, Exception] = {}

    def raise_what_failed(self, keys: list[Key]) -> None:
        """Raise an error if something has failed."""
        if not self.reasons:
            return
        if not self.made and not self.unknown:
            raise next(iter(self.reasons.values()))
        if not self.made and not self.not_made:
            message = "the change may still be made; upsert and delete may be asked for again"
            raise NoAnswerError(list(self.reasons), message)
        made, not_made, unknown = (
            [key for positions in parts for key in picked(keys, positions)]
            for parts in (self.made, self.not_made, self.unknown)
        )
        raise PartialChangeError(made, not_made, unknown, self.reasons)


def _in_rounds(changes: list[Change]) -> list[list[Change]]:
    """Return changes in rounds, in each of which a shard makes one at most."""
    rounds: list[list[Change]] = []
    n_of: dict[str, int] = {}
    for change in changes:
        number = n_of.get(change.shard, 0)
        n_of[change.shard] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(change)
    return rounds
