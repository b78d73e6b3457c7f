"""Connections to Ray, which is imported on first use."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from .._display import warn
from ._errors import ClusterError

_NAMESPACE = "cmt_numba"  # of the names of actors
_LOOPBACK = "127.0.0.1"


def ray() -> Any:
    """Return the module ``ray``.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise ImportError("cmt_numba.distributed needs ray: pip install 'cmt-numba[ray]'", name="ray") from error


def running() -> Any:
    """Return the module ``ray``, connected to a cluster.

    Raises
    ------
    ClusterError
        If this process has lost its connection to the cluster.
    """
    module = ray()
    if not module.is_initialized():
        raise ClusterError("Ray is no longer running in this process; start it and open the store again")
    return module


def name_of_actor(cluster: str, shard: str) -> dict[str, str]:
    """Return the options of Ray that name the actor of a shard."""
    return {"name": f"{cluster} {shard}", "namespace": _NAMESPACE}


def actor_of(cluster: str, shard: str) -> Any:
    """Return the handle of the actor of a shard.

    Raises
    ------
    ClusterError
        If there is none.
    """
    try:
        return running().get_actor(**name_of_actor(cluster, shard))
    except ValueError as error:
        raise ClusterError(f"{shard} is gone: {error}") from error


def shards_running(cluster: str) -> list[str]:
    """Return the sorted names of the shards of a store that have an actor."""
    listed = running().util.list_named_actors(all_namespaces=True)
    names = [one["name"].split(" ") for one in listed if one["namespace"] == _NAMESPACE]
    return sorted(name[1] for name in names if len(name) == 2 and name[0] == cluster)  # replicas have a number too


def start(address: str | None = None, **options: Any) -> None:
    """Start Ray on this machine, or connect to a cluster. Does nothing if this process is connected.

    Ray is started without its dashboard, without reports of its usage and without printing. Its processes accept
    connections from this machine only.

    Parameters
    ----------
    address : str, optional
        The address of a cluster, or "auto" for one that ``ray start`` has started on this machine. By default the
        environment variable ``RAY_ADDRESS``; if it is not set, Ray is started on this machine.
    **options
        More parameters of ``ray.init``, such as ``num_cpus``.

    Raises
    ------
    ImportError
        If Ray is not installed.
    ConnectionError
        If there is no cluster at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Restricts Ray to the loopback interface, as on macOS and Windows by default. Ray reads it when it is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    module = ray()
    if module.is_initialized():
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        quiet["include_dashboard"] = False
    module.init(address, **(quiet | options))
    if address == "local" and module.util.get_node_ip_address() != _LOOPBACK:
        message = (
            "Ray accepts connections from other machines, because it was imported before cmt_numba.distributed.start; "
            "call start before anything imports ray"
        )
        warn(message, RuntimeWarning)
