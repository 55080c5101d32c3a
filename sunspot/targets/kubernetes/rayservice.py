"""A stack and what Ray Serve serves on it, as the RayService that KubeRay keeps running.

KubeRay makes the cluster itself, under a name of its own, deploys the applications, and points a
service at the pods whose ingress answers. An edit of the cluster is a second cluster beside the
first, which takes over when its applications run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sunspot import yaml_text
from sunspot.errors import UsageError
from sunspot.ray import ports, serve_config
from sunspot.stack import Stack
from sunspot.stack_problems import wrong
from sunspot.targets.kubernetes import raycluster
from sunspot.targets.kubernetes.pods import EVERY_ADDRESS
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.kubernetes.settings import KEY, TARGET
from sunspot.targets.kubernetes.values import service_name

# On each node that has a replica: KubeRay probes each worker's own ingress, and a pod without one
# is not ready (docs.ray.io, "RayService worker Pods aren't ready").
PROXIES = "EveryNode"


def make(stack: Stack, source: str) -> list[dict[str, Any]]:
    """The RayService of a stack.

    Without the head's disruption budget: for a while there are two heads, and a budget for both
    together would protect neither.

    Args:
        stack: the stack.
        source: a file in Serve's format (YAML or JSON), or MODULE:APP.

    Raises:
        UsageError: the stack or the config is wrong for Kubernetes; the message has every problem
            of the stack.
    """
    called = names(stack)
    _check_volume(stack)
    return [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayService",
            "metadata": called.metadata(called.cluster),
            "spec": {
                "serveConfigV2": yaml_text.dump(config(source)),
                "rayClusterConfig": raycluster.inner_spec(stack),
            },
        }
    ]


def names(stack: Stack) -> Names:
    """What the stack's RayService is called. Raises as `raycluster.names` does."""
    called = raycluster.names(stack)
    try:
        service_name(called.cluster)
    except UsageError as error:
        raise wrong(
            f"stack {stack.name} on {TARGET}", [f"config > {KEY} > name: {error}"]
        ) from None
    return called


def _check_volume(stack: Stack) -> None:
    asked = raycluster.settings(stack).gcs_fault_tolerance
    if asked is not None and asked.claim is not None:
        problem = (
            f"config > {KEY} > gcs_fault_tolerance > claim: {asked.claim!r} is one volume, and an "
            "upgrade of a RayService has two clusters for a while: leave it out"
        )
        raise wrong(f"stack {stack.name} on {TARGET}", [problem])


def service(called: Names) -> str:
    """The service that leads to the applications, by KubeRay's rule."""
    return f"{called.cluster}-serve-svc"


def config(source: str) -> dict[str, Any]:
    """Serve's config, as KubeRay hands it to Serve.

    Raises:
        UsageError: there is no such config, or it cannot work in a cluster that KubeRay makes.
    """
    read = serve_config.read(source)
    if problems := [*_of_ingress(read), *_of_applications(read["applications"])]:
        raise wrong(source, problems)
    read["http_options"] |= {"host": EVERY_ADDRESS, "port": ports.get("serve").number}
    return read | {"proxy_location": PROXIES}


def _of_ingress(read: Mapping[str, Any]) -> Iterator[str]:
    usual, http = ports.get("serve").number, read["http_options"]
    if http.get("port", usual) != usual:
        yield (
            f"http_options > port: {http['port']!r} is not {usual}, which the service leads to: "
            "leave it out"
        )
    if http.get("host", EVERY_ADDRESS) != EVERY_ADDRESS:
        yield (
            f"http_options > host: {http['host']!r} is not {EVERY_ADDRESS}, on which KubeRay looks "
            "for the ingress: leave it out"
        )
    if read.get("proxy_location", PROXIES) != PROXIES:
        yield (
            f"proxy_location: {read['proxy_location']!r} leaves pods without an ingress, which "
            "KubeRay takes for not ready: leave it out"
        )


def _of_applications(apps: list[dict[str, Any]]) -> Iterator[str]:
    if not apps:
        yield "applications: empty, so that nothing would be served: give one"
    for at, app in enumerate(apps):
        where = f"applications > {app.get('name', at)}"
        if not isinstance(app.get("import_path"), str):
            yield f"{where} > import_path: missing: give MODULE:APP"
        yield from _of_environment(where, app)
        for deployment in _list(app.get("deployments")):
            options = deployment.get("ray_actor_options") if isinstance(deployment, dict) else None
            if isinstance(options, dict):
                yield from _of_environment(f"{where} > {deployment.get('name')}", options)


def _of_environment(where: str, of: Mapping[str, Any]) -> Iterator[str]:
    env = of.get("runtime_env") or {}
    if not isinstance(env, dict):
        yield f"{where} > runtime_env: {env!r} is not a mapping"
        return
    modules = env.get("py_modules") or []
    if not isinstance(modules, list):
        yield f"{where} > runtime_env > py_modules: {modules!r} is not a list"
    folders = [("working_dir", env["working_dir"])] if env.get("working_dir") else []
    for key, folder in [*folders, *(("py_modules", one) for one in _list(modules))]:
        if "://" not in str(folder):
            yield (
                f"{where} > runtime_env > {key}: {folder!r} is a folder of this machine, and "
                "nothing is sent from here: give the URI of a zip (https://, s3://, azure://), or "
                "put the code into the image"
            )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
