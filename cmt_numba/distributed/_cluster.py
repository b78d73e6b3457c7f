"""Connection to Ray, which is imported at first use."""

import os
from importlib import import_module
from typing import Any

from .._display import warn
from ._errors import ClusterError

_NAMESPACE = "cmt_numba"  # Ray's namespace for actor names
_LOOPBACK = "127.0.0.1"


def ray() -> Any:
    """Return the module ``ray``."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise ImportError("cmt_numba.distributed needs ray: pip install 'cmt-numba[ray]'", name="ray") from error


def running() -> Any:
    """Return the module ``ray`` after checking that it is connected to a cluster."""
    module = ray()
    if not module.is_initialized():
        raise ClusterError("Ray is no longer running in this process; start it and open the store again")
    return module


def name_of_actor(cluster: str, shard: str) -> dict[str, str]:
    """Return the Ray options with the name of a shard's or a replica's actor."""
    return {"name": f"{cluster} {shard}", "namespace": _NAMESPACE}


def actor_of(cluster: str, shard: str) -> Any:
    """Return the handle of a shard's or a replica's actor."""
    try:
        return running().get_actor(**name_of_actor(cluster, shard))
    except ValueError as error:
        raise ClusterError(f"{shard} has no actor: {error}") from error


def shards_running(cluster: str) -> list[str]:
    """Return the sorted names of a store's shards that have an actor."""
    listed = running().util.list_named_actors(all_namespaces=True)
    names = [one["name"].split(" ") for one in listed if one["namespace"] == _NAMESPACE]
    return sorted(name[1] for name in names if len(name) == 2 and name[0] == cluster)  # replica names have 3 parts


def start(address: str | None = None, **options: Any) -> None:
    """Start Ray on this machine, or connect to a cluster. Do nothing if this process is already connected.

    Ray is started without its dashboard, usage reports and output. Its processes accept connections only from this
    machine.

    Parameters
    ----------
    address : str, optional
        The address of a cluster, or "auto" for a cluster that ``ray start`` has started on this machine. The default is
        the environment variable ``RAY_ADDRESS``. If neither is set, Ray is started on this machine.
    **options
        Additional parameters of ``ray.init``, such as ``num_cpus``.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Restrict Ray to the loopback interface, its default on macOS and Windows. Ray reads this at import.
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
