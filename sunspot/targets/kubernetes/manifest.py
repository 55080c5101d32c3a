"""A cluster's resources as the text that `kubectl apply` reads, and the commands around it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sunspot import yaml_text
from sunspot.ray import ports
from sunspot.stack import Stack
from sunspot.targets.kubernetes import placing, raycluster, rayjob, rayservice, rights
from sunspot.targets.kubernetes.pods import TOKEN_KEY
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.kubernetes.settings import TARGET

_HEADER = """\
# The cluster of the stack {stack!r} for {kuberay} or later, made by Sunspot.
#
{secret}# Then:
#   {apply}
"""
_SERVED_HEADER = """\
# The stack {stack!r} and what Ray Serve serves on it, for {kuberay} or later, made by Sunspot.
#
{secret}# Then:
#   {apply}
# The applications ask for no token: every pod that reaches the service {service} may call them.
# From this machine:
#   {forward}
"""
_JOB_HEADER = """\
# One command on the cluster of the stack {stack!r}, which is deleted after it, for {kuberay} or
# later, made by Sunspot.
#
{secret}# Then:
#   kubectl apply -f FILE
# Its output, also when the cluster is gone; and how it ended:
#   kubectl wait --namespace {namespace} --for=create --timeout=1h job/{name}
#   kubectl logs --namespace {namespace} --follow job/{name}
#   kubectl get rayjob --namespace {namespace} {name}
"""
_TO_CREATE = """\
# It refers to a Secret with the cluster's token, which is not in this file. Create it once:
#   {create}
"""
_GIVEN = """\
# It refers to a Secret of yours, {name}, whose key {key} has the cluster's token.
"""
_FAULT_TOLERANCE = """\
# The GCS's state is kept by RocksDB, which is alpha: the operator may want its feature gate
# GCSFaultToleranceEmbeddedStorage.
"""
_KEPT = """\
# `kubectl delete -f` would delete the claim {claim} too. To keep it:
#   kubectl delete --namespace {namespace} raycluster/{name}{budget}
"""
_RIGHTS_HEADER = """\
# What the group {group!r} needs to apply the manifest of the stack {stack!r}, and to use its
# cluster. Whoever applies this must have these rights too.
"""


def text(stack: Stack) -> str:
    """The manifest: the same text for the same stack. Raises as `raycluster.make` does."""
    made = raycluster.make(stack)
    called = raycluster.names(stack)
    header = _HEADER.format(
        stack=stack.name,
        kuberay=_kuberay(made[0]["spec"]),
        secret=_secret(stack, called),
        apply=apply(stack),
    )
    return header + _kept(stack) + _documents(made)


def served_text(stack: Stack, source: str) -> str:
    """The manifest of a RayService. Raises as `rayservice.make` does."""
    made = rayservice.make(stack, source)
    called, spec = rayservice.names(stack), made[0]["spec"]["rayClusterConfig"]
    service = rayservice.service(called)
    header = _SERVED_HEADER.format(
        stack=stack.name,
        kuberay=_kuberay(spec),
        secret=_secret(stack, called),
        apply=apply(stack, source),
        service=service,
        forward=f"kubectl port-forward --namespace {called.namespace} service/{service} "
        f"{ports.get('serve').number}",
    )
    return header + _fault_tolerance(spec) + _documents(made)


def job_text(
    stack: Stack, command: Sequence[str], environment: Mapping[str, Any] | None = None
) -> str:
    """The manifest of a RayJob. Raises as `rayjob.make` does."""
    made = rayjob.make(stack, command, environment)
    called, spec = rayservice.names(stack), made[0]["spec"]["rayClusterSpec"]
    header = _JOB_HEADER.format(
        stack=stack.name,
        kuberay=_kuberay(spec),
        secret=_secret(stack, called),
        namespace=called.namespace,
        name=called.cluster,
    )
    return header + _fault_tolerance(spec) + _documents(made)


def rights_text(stack: Stack) -> str:
    """The Role and its RoleBinding. Raises as `raycluster.names` does."""
    group = raycluster.settings(stack).user_group
    header = _RIGHTS_HEADER.format(group=group, stack=stack.name)
    return header + _documents(rights.make(stack))


def _secret(stack: Stack, called: Names) -> str:
    """What a header says of the token's Secret."""
    if raycluster.settings(stack).token_secret is not None:
        return _GIVEN.format(name=called.token_secret, key=TOKEN_KEY)
    return _TO_CREATE.format(create=create_secret(called))


def _kuberay(spec: Mapping[str, Any]) -> str:
    major, minor = raycluster.oldest_kuberay(spec)
    return f"KubeRay {major}.{minor}"


def _fault_tolerance(spec: Mapping[str, Any]) -> str:
    return _FAULT_TOLERANCE if "gcsFaultToleranceOptions" in spec else ""


def _kept(stack: Stack) -> str:
    """What keeps the volume of the GCS's state where it is to outlive the cluster."""
    volume, called = raycluster.state_volume(stack), raycluster.names(stack)
    if volume is None or not volume.is_own or volume.goes:
        return ""
    has_budget = raycluster.settings(stack).head_disruption_budget
    return _KEPT.format(
        claim=volume.claim,
        namespace=called.namespace,
        name=called.cluster,
        budget=f" pdb/{called.cluster}-head" if has_budget else "",
    )


def _documents(made: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"---\n{yaml_text.dump(one)}" for one in made)


# The commands


def create_secret(called: Names) -> str:
    """Makes the token and its Secret; the token is in no argument, which others could read."""
    return (
        f"openssl rand -hex 32 | tr -d '\\n' | kubectl create secret generic {called.token_secret} "
        f"--namespace {called.namespace} --from-file={TOKEN_KEY}=/dev/stdin"
    )


def apply(stack: Stack, served: str | None = None) -> str:
    """Applies the manifest; with the config of what is served, or its MODULE:APP."""
    serve = "" if served is None else f" --serve {shlex.quote(served)}"
    name = placing.called(stack)
    # It may have been given with the command.
    place = f" --namespace {raycluster.names(stack).namespace}"
    return f"sunspot manifest {name} --target {TARGET}{place}{serve} | kubectl apply -f -"
