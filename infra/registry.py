"""The stack's registry: copies of the images of Docker Hub, and the user's own image.

A run of a task, on a machine of Azure's, copies; the user's image is built where Pulumi runs.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, containerregistry

from infra.identities import Identities
from infra.place import Place, answered
from infra.roles import ACR_PULL, assign
from sunspot.ray.images import ImageBuild
from sunspot.targets.azure.images import RUN_S, Copy, task
from sunspot.targets.azure.tree import Resource

REPOSITORY = "sunspot/ray"


@dataclass(frozen=True, kw_only=True)
class RegistryArgs:
    """What is built and copied, and who may pull it. `build` is None if nothing is built."""

    place: Place
    identities: Identities
    build: ImageBuild | None
    copies: Sequence[Copy]


class Registry(pulumi.ComponentResource):
    """A registry from which the nodes may pull.

    `image` names the built image by its digest, and is None if nothing is built. `copied` is the
    run that copies, if there is one: machines wait for it.
    """

    login_server: pulumi.Output[str]
    image: pulumi.Output[str] | None
    copied: Sequence[pulumi.Resource]
    head_role: authorization.RoleAssignment
    workers_role: authorization.RoleAssignment

    def __init__(
        self, declared: Resource, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        registry = _create_registry(declared["registry"], args.place, parent=self)
        self.login_server = registry.login_server
        self.image = (
            None
            if args.build is None
            else _build_image(declared["image"], registry, args.place, args.build, parent=self)
        )
        self.copied = (
            [_copy_images(declared["copies"], registry, args, parent=self)] if args.copies else []
        )
        self.head_role = assign(
            declared["head-pulls"],
            principal_id=args.identities.head.principal_id,
            role=ACR_PULL,
            scope=registry.id,
            parent=self,
        )
        self.workers_role = assign(
            declared["workers-pull"],
            principal_id=args.identities.workers.principal_id,
            role=ACR_PULL,
            scope=registry.id,
            parent=self,
        )
        self.register_outputs({"loginServer": self.login_server, "image": self.image})


def _create_registry(
    declared: Resource, place: Place, *, parent: pulumi.Resource
) -> containerregistry.Registry:
    return containerregistry.Registry(
        declared.name,
        resource_group_name=place.resource_group,
        location=place.location,
        sku=containerregistry.SkuArgs(name=containerregistry.SkuName.BASIC),
        # Only for the push: Docker logs in by name and password, which those who run Pulumi may
        # read. The nodes pull by their identities.
        admin_user_enabled=True,
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _copy_images(
    declared: Resource,
    registry: containerregistry.Registry,
    args: RegistryArgs,
    *,
    parent: pulumi.Resource,
) -> containerregistry.TaskRun:
    content = task(args.copies).encode()
    return containerregistry.TaskRun(
        declared.name,
        resource_group_name=args.place.resource_group,
        registry_name=registry.name,
        # A run of another content is another resource, so Azure runs each content once.
        task_run_name=f"copies-{hashlib.sha256(content).hexdigest()[:12]}",
        location=args.place.location,
        run_request=containerregistry.EncodedTaskRunRequestArgs(
            type="EncodedTaskRunRequest",
            encoded_task_content=base64.b64encode(content).decode("ascii"),
            platform=containerregistry.PlatformPropertiesArgs(
                os=containerregistry.OS.LINUX,
                architecture=containerregistry.Architecture.AMD64,
            ),
            # The run's Docker is logged in to the registry, and to nothing else.
            credentials=containerregistry.CredentialsArgs(
                source_registry=containerregistry.SourceRegistryCredentialsArgs(
                    login_mode=containerregistry.SourceRegistryLoginMode.DEFAULT
                )
            ),
            timeout=RUN_S,
        ),
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _build_image(
    declared: Resource,
    registry: containerregistry.Registry,
    place: Place,
    build: ImageBuild,
    *,
    parent: pulumi.Resource,
) -> pulumi.Output[str]:
    # Only a stack that builds its image needs this provider, and Docker.
    import pulumi_docker_build as docker_build

    credentials = containerregistry.list_registry_credentials_output(
        resource_group_name=place.resource_group, registry_name=registry.name
    )
    image = docker_build.Image(
        declared.name,
        context=docker_build.BuildContextArgs(location=str(build.context)),
        dockerfile=docker_build.DockerfileArgs(location=str(build.dockerfile)),
        platforms=[docker_build.Platform.LINUX_AMD64],
        push=True,
        # A preview must not need Docker.
        build_on_preview=False,
        registries=[
            docker_build.RegistryArgs(
                address=registry.login_server,
                username=credentials.apply(_user),
                password=pulumi.Output.secret(credentials.apply(_password)),
            )
        ],
        tags=[pulumi.Output.concat(registry.login_server, "/", REPOSITORY, ":latest")],
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return pulumi.Output.concat(registry.login_server, "/", REPOSITORY, "@", image.digest)


def _user(credentials: containerregistry.ListRegistryCredentialsResult) -> str:
    return answered(credentials.username, "who may push to the registry")


def _password(credentials: containerregistry.ListRegistryCredentialsResult) -> str:
    found = [] if credentials.passwords is None else credentials.passwords
    return answered(found[0].value if found else None, "the password of the registry")
