"""Answers of actors and tasks of Ray, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ._cluster import running
from ._errors import ClusterError

LONGEST = 1e6
"""Seconds, more than anything takes."""


def waited_for(refs: Mapping[str, Any], seconds: float) -> tuple[dict[str, Any], dict[str, Exception], list[str]]:
    """Wait for the answers of shards.

    Parameters
    ----------
    refs : dict of str to ObjectRef
        Ray's references to the answers, by the names of the shards.
    seconds : float
        How long to wait at most.

    Returns
    -------
    values : dict of str to object
        The answers.
    errors : dict of str to Exception
        What was raised.
    missing : list of str
        The names of shards that did not answer in time.

    Raises
    ------
    ClusterError
        If this process has lost its connection to the cluster.
    """
    module, waiting = running(), list(refs.values())
    deadline = time.monotonic() + seconds
    done: set[Any] = set()
    while waiting and time.monotonic() < deadline:
        some, waiting = module.wait(waiting, timeout=max(0.0, deadline - time.monotonic()))
        done.update(some)
    values: dict[str, Any] = {}
    errors: dict[str, Exception] = {}
    for name, ref in refs.items():
        if ref not in done:
            continue
        try:
            values[name] = module.get(ref)
        except module.exceptions.RayTaskError as error:
            errors[name] = error.cause if isinstance(error.cause, Exception) else error
        except module.exceptions.RayActorError as error:
            errors[name] = ClusterError(f"{name} has died and is not restarted: {error}")
    return values, errors, [name for name, ref in refs.items() if ref not in done]
