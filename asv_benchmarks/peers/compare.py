"""Measure all peers on one set, in rounds, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .contract import Options, Peer, Shape, described
from .processes import PeerError, PeerProcess
from .registry import PEERS, find_peer, is_installed
from .results import Entrant, Point, SetResult, Stream, median
from .task import Judge, Task, save_task


@dataclass
class Plan:
    """How much to measure.

    Attributes
    ----------
    peers : list of str
        Peers wanted.
    n_runs : int
        Rounds.
    n_threads : int
        Threads of each peer.
    quick : bool
        Whether to leave out most builds and settings.
    stream : bool
        Whether to measure inserting with queries in between.
    query_limit : float
        Seconds that the queries of one setting may take; slower peers get fewer queries.
    build_limit : float
        Seconds; a build that takes longer is not repeated in later rounds.
    patience : float
        Seconds; a peer that takes longer for anything is given up.
    clock : {"wall", "cpu"}
        Whether times are those that pass, or those that the peer's threads are at work. The latter suffer less from
        other jobs on the machine.
    say : callable
        Is told what is being done.
    """

    peers: list[str]
    n_runs: int = 5
    n_threads: int = 1
    quick: bool = False
    stream: bool = True
    query_limit: float = 5.0
    build_limit: float = 60.0
    patience: float = 1800.0
    clock: str = "wall"
    say: Callable[[str], None] = lambda words: print(words, file=sys.stderr, flush=True)


def able_peers(plan: Plan, shape: Shape) -> tuple[dict[str, type[Peer]], dict[str, str]]:
    """Return the peers that can take part, and why the others cannot."""
    able, left_out = {}, {}
    for name in plan.peers:
        if name not in PEERS:
            raise ValueError(f"peers must be among {', '.join(PEERS)}, not {name!r}")
        peer = find_peer(name)
        if not (peer.sparse if shape.sparse else peer.dense):
            left_out[name] = f"does not take {'sparse' if shape.sparse else 'dense'} rows"
        elif not is_installed(peer):
            left_out[name] = f"the package {peer.package} is not installed"
        else:
            able[name] = peer
    return able, left_out


def measure_set(task: Task, plan: Plan) -> SetResult:
    """Measure all peers of a plan on a task."""
    able, left_out = able_peers(plan, task.shape)
    result = SetResult(task.shape._asdict(), left_out=left_out)
    if not able:
        return result
    judge = Judge(task)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_task(task, folder)
        running = [
            _Running(peer, build, folder, plan, judge)
            for peer in able.values()
            for build in peer.builds(task.shape, plan.quick)
        ]
        try:
            for round_ in range(plan.n_runs):
                _measure_round(running, round_, plan)
        finally:
            for one in running:
                one.close()
        result.entrants = [one.entrant for one in running]
        if plan.stream:
            result.streams = _measure_streams(able, task.shape, folder, plan)
    return result


def _measure_round(running: list[_Running], round_: int, plan: Plan) -> None:
    start = round_ * len(running) // plan.n_runs  # another one is the first in each round
    order = running[start:] + running[:start]
    for one in order:
        one.attempt(one.build, round_)
        if one.peer.heavy:
            for place in range(len(one.entrant.points)):
                one.attempt(one.measure, place)
            one.close()
    light = [one for one in order if not one.peer.heavy]
    plan.say(f"round {round_ + 1} of {plan.n_runs}: queries")
    for place in range(max((len(one.entrant.points) for one in light), default=0)):
        for one in light:
            one.attempt(one.measure, place)


def start_peer(name: str, folder: Path, plan: Plan) -> PeerProcess:
    """Return a new process of a peer."""
    return PeerProcess(name, folder, plan.n_threads, plan.patience, plan.clock)


class _Running:
    """An entrant and its process."""

    def __init__(self, peer: type[Peer], build: Options, folder: Path, plan: Plan, judge: Judge) -> None:
        self.peer, self._folder, self._plan, self._judge = peer, folder, plan, judge
        self.entrant = Entrant(peer.name, build, peer.ours, peer.exact)
        settings = peer(judge.task.shape, plan.n_threads, folder).settings(build, plan.quick)
        self.entrant.points = [Point(setting) for setting in settings]
        self._process: PeerProcess | None = None

    def attempt(self, work: Callable[[int], None], number: int) -> None:
        """Do some work unless the entrant has been given up; give it up if that fails."""
        if self.entrant.problem is not None:
            return
        try:
            work(number)
        except PeerError as failure:
            self.entrant.problem = str(failure)
            self._plan.say(f"{self.entrant.name}: {failure}")
            self.close()

    def build(self, round_: int) -> None:
        """Build, unless that has been done before and takes too long."""
        entrant = self.entrant
        if entrant.seconds and median(entrant.seconds) > self._plan.build_limit:
            return
        if self._process is None:
            self._process = start_peer(entrant.peer, self._folder, self._plan)
        built = self._process.call("build", entrant.build)
        entrant.seconds.append(built.seconds)
        entrant.n_cpus.append(built.n_cpus)
        entrant.peak_mb.append(built.peak_mb)
        entrant.kept_mb.append(built.kept_mb)
        self._plan.say(f"round {round_ + 1} of {self._plan.n_runs}: {entrant.name} built in {built.seconds:.2f} s")

    def measure(self, place: int) -> None:
        """Measure one setting, if there is one at this place and there is a build."""
        if self._process is None or place >= len(self.entrant.points):
            return
        point = self.entrant.points[place]
        asked = self._process.call("measure", point.setting, self._plan.query_limit)
        point.n_queries = asked.n_queries
        point.error.append(self._judge.error(asked.labels))
        point.us.append(asked.us)
        point.single_us.append(asked.single_us)
        for k, ids in asked.ids_at.items():
            if str(k) not in point.recall:
                point.recall[str(k)] = self._judge.recall(ids)
            point.us_at.setdefault(str(k), []).append(asked.us_at[k])

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.close()
            self._process = None


def _measure_streams(able: dict[str, type[Peer]], shape: Shape, folder: Path, plan: Plan) -> dict[str, list[Stream]]:
    """Return what inserting takes; an empty list for peers that cannot."""
    streams: dict[str, list[Stream]] = {}
    for name, peer in able.items():
        wanted = peer.streams(shape)
        streams[name] = [Stream(*options) for options in (wanted[:1] if plan.quick else wanted)]
    for round_ in range(plan.n_runs):
        for name, some in streams.items():
            for stream in some:
                plan.say(f"round {round_ + 1} of {plan.n_runs}: inserting, {name} ({described(stream.build)})")
                try:
                    process = start_peer(name, folder, plan)
                    streamed = process.call("stream", stream.build, stream.setting, plan.query_limit)
                    process.close()
                except PeerError as failure:
                    plan.say(f"{name}: {failure}")
                    continue
                stream.inserts_per_second.append(streamed.inserts_per_second)
                stream.us_a_query.append(streamed.us_a_query)
                stream.error.append(streamed.error)
    return streams
