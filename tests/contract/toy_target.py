"""A whole target: clusters of one head, a `ray start --block` on this machine."""

import os
import secrets
import shutil
import subprocess
import sysconfig
import time
from dataclasses import dataclass, replace

from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import write_private
from sunspot.node.free_ports import free_port
from sunspot.node.local.folder import CLUSTER_VARIABLE, ClusterFolder
from sunspot.node.processes import Process
from sunspot.ray import resources, start
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.start import Head, RayNode
from sunspot.signals import deferred, uninterrupted
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets import members
from sunspot.targets.protocol import UP_TIMEOUT_S, Removal, Up, silent
from sunspot.targets.records import Folders, not_up, state_directory


def create():
    return ToyTarget(Folders(state_directory() / "toy"))


@dataclass(frozen=True)
class ToyTarget:
    records: Folders
    name: str = "toy"

    def check(self, stack):
        if stack.cluster.scaling_groups:
            raise UsageError("on toy a cluster is only a head: leave scaling_groups out")

    def up(self, stack, progress, *, timeout_s=UP_TIMEOUT_S, port=None, dashboard_port=None, **_):
        self.check(stack)
        with self.records.locked(stack.name, progress):
            if stack.name in self.names() and not members.missing(stack, self.handle(stack.name)):
                return Up(self.handle(stack.name), was_up=True)
            try:
                self._remove(stack.name)  # what a killed `up` left
                self._start(stack, {"gcs": port, "dashboard": dashboard_port})
                progress("the head has started")
                deadline = time.monotonic() + timeout_s
                while missing := members.missing(stack, self.handle(stack.name)):
                    if time.monotonic() > deadline:
                        raise SunspotError(f"timed out after {timeout_s:g} s: {missing}")
                    time.sleep(0.2)
                progress("the head has joined")
            except BaseException:
                self._remove(stack.name)
                raise
        return Up(self.handle(stack.name), was_up=False)

    def down(self, name, progress, *, delete_storage=False):  # noqa: ARG002
        if name not in self.names():
            return None
        with self.records.locked(name, progress):
            progress("ending the head")
            self._remove(name)
        return Removal(looked_for="process", left=[*map(str, self._folder(name).processes())])

    def names(self):
        return self.records.names()

    def discover(self, name):
        return name in self.names()

    def stack(self, name):
        return Stack.model_validate(self._record(name)["stack"])

    def handle(self, name, progress=silent):  # noqa: ARG002
        ways, token = self._record(name)["ways"], self._folder(name).token
        return ClusterHandle(name=name, target=self.name, token_path=token, **ways)

    def nodes(self, name, progress=silent):  # noqa: ARG002
        return members.nodes(self.stack(name), self.handle(name))

    def _folder(self, name):
        return ClusterFolder(self.records.path(name))

    def _record(self, name):
        if (record := self.records.read(name, "cluster.json")) is None:
            raise not_up(name)
        return record

    def _start(self, stack, ports):
        folder, has = self._folder(stack.name), resources.of(stack.cluster.head_node)
        ports |= {"client": None, "dashboard-agent": None}
        ports = {name: number or free_port(set()) for name, number in ports.items()}
        gcs, api = (f"127.0.0.1:{ports[one]}" for one in ("gcs", "dashboard"))
        ways = {"head_address": gcs, "driver_address": gcs, "job_address": f"http://{api}"}
        record = {"ways": ways, "stack": stack.model_dump(mode="json")}
        self.records.write(stack.name, "cluster.json", record)
        write_private(folder.token, secrets.token_hex(32))
        folder.temp_dir.mkdir(parents=True, mode=0o700)
        node = RayNode(group=HEAD, market="on-demand", resources=has, object_store=has.object_store)
        ports |= dict.fromkeys(("workers", "autoscaler-metrics", "dashboard-metrics"), 0)
        node = replace(node, head=Head(), name=HEAD, node_ip="127.0.0.1", port_numbers=ports)
        node = replace(node, token_path=str(folder.token), temp_dir=str(folder.temp_dir))
        programs = sysconfig.get_path("scripts")
        own = {CLUSTER_VARIABLE: str(folder.path), "PATH": f"{programs}:{os.environ['PATH']}"}
        env = os.environ | start.environment(node) | own
        command = [f"{programs}/ray", "start", *start.flags(node)]
        with deferred(), (folder.path / "log").open("wb") as log:
            ray = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
            folder.record_process(HEAD, Process.of(ray.pid))

    def _remove(self, name):
        folder = self._folder(name)
        with uninterrupted():
            folder.stop()
            shutil.rmtree(folder.temp_dir, ignore_errors=True)
            shutil.rmtree(folder.path, ignore_errors=True)
