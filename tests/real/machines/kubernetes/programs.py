"""The programs of a cluster, with what each is told, in the order in which they start."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from machines.kubernetes import BIN
from machines.kubernetes.authority import Authority, signing_key
from machines.kubernetes.node import (
    API_SERVICE,
    CONTAINERD,
    DNS_SERVICE,
    DNS_ZONE,
    NAME,
    POD_RANGE,
    SERVICE_RANGE,
    Machine,
)
from machines.namespaces import PATH
from machines.processes import environment, server

ETCD = "http://127.0.0.1:2379"
API_PORT = 6443

# What has no more than ports that answer to say that it is ready.
DNS_HEALTH, OPERATOR_HEALTH = "127.0.0.1:18081", "127.0.0.1:18082"

_COREFILE = """\
{zone} {{
    bind {address}
    errors
    health {health}
    kubernetes {zone} {{
        kubeconfig {kubeconfig}
    }}
}}
. {{
    bind {address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


@dataclass(frozen=True)
class Programs:
    """Starts a cluster's programs on its machine; they end with the block of `running`."""

    machine: Machine
    authority: Authority
    running: contextlib.ExitStack

    def container_runtime(self) -> None:
        """The containerd of the pods."""
        config = self.machine.folder / "containerd.toml"
        command = ["containerd", "--config", str(config), "--address", CONTAINERD]
        command += ["--root", str(self.machine.folder / "containerd")]
        command += ["--state", "/run/containerd/state"]
        self._start(*command, ready=lambda: self._runs("ctr", "--address", CONTAINERD, "version"))

    def control_plane(self) -> None:
        """The API server over an etcd that lives in memory, the controllers and the scheduler."""
        self._start(
            *("etcd", "--data-dir=/run/etcd", "--unsafe-no-fsync", "--log-level=warn"),
            *(f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}"),
            "--listen-peer-urls=http://127.0.0.1:2380",
            ready=lambda: self._answers(f"{ETCD}/health"),
        )
        ca, folder = self.authority.ca, self.authority.folder
        service_accounts = signing_key(folder / "service-accounts.key")
        names = (NAME, "127.0.0.1", self.machine.address, API_SERVICE, "kubernetes.default.svc")
        certificate, key = self.authority.serving("serving", names)
        to_kubelet, to_kubelet_key = self.authority.client("kube-apiserver", ["system:masters"])
        self._start(
            "kube-apiserver",
            f"--etcd-servers={ETCD}",
            f"--advertise-address={self.machine.address}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            f"--client-ca-file={ca}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--kubelet-client-certificate={to_kubelet}",
            f"--kubelet-client-key={to_kubelet_key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-issuer=https://kubernetes.default.svc.{DNS_ZONE}",
            f"--service-account-key-file={service_accounts}",
            f"--service-account-signing-key-file={service_accounts}",
            ready=lambda: self._answers(f"https://127.0.0.1:{API_PORT}/readyz"),
        )
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self._identity('system:kube-controller-manager')}",
            f"--root-ca-file={ca}",
            f"--service-account-private-key-file={service_accounts}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--controllers=*,-node-ipam-controller",
            # Nodes that a test makes have nothing behind them that reports.
            "--node-monitor-grace-period=24h",
        )
        self._start(
            "kube-scheduler",
            f"--kubeconfig={self._identity('system:kube-scheduler')}",
            "--leader-elect=false",
        )

    def node(self) -> None:
        """The kubelet, and what leads to services and finds them by name."""
        self._start(
            "kubelet",
            f"--kubeconfig={self._identity(f'system:node:{NAME}', 'system:nodes')}",
            f"--config={self._kubelet_configuration()}",
            f"--hostname-override={NAME}",
            f"--node-ip={self.machine.address}",
            f"--root-dir={self.machine.folder / 'kubelet'}",
        )
        self._start(
            "kube-proxy",
            f"--kubeconfig={self._identity('system:kube-proxy')}",
            f"--hostname-override={NAME}",
            f"--cluster-cidr={POD_RANGE}",
            # An answer between two pods would otherwise pass the bridge by itself.
            "--masquerade-all",
            "--oom-score-adj=0",
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        )
        corefile = self.machine.folder / "Corefile"
        kubeconfig = self._identity("coredns")
        corefile.write_text(
            _COREFILE.format(
                zone=DNS_ZONE, address=DNS_SERVICE, health=DNS_HEALTH, kubeconfig=kubeconfig
            )
        )
        self._start(
            *("coredns", "-conf", str(corefile)),
            ready=lambda: self._answers(f"http://{DNS_HEALTH}/health"),
        )

    def operator(self) -> None:
        """KubeRay's operator, beside the cluster and not in a pod of it."""
        self._start(
            "ray-operator",
            f"-kubeconfig={self._identity('kuberay-operator')}",
            "-enable-leader-election=false",
            "-metrics-addr=127.0.0.1:18080",
            f"-health-probe-bind-address={OPERATOR_HEALTH}",
            ready=lambda: self._answers(f"http://{OPERATOR_HEALTH}/readyz"),
        )

    def _kubelet_configuration(self) -> Path:
        path = self.machine.folder / "kubelet.yaml"
        said = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.authority.ca)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.machine.cgroup,
            "enforceNodeAllocatable": [],
            # Version 1 of control groups, and swap, may be what this machine has.
            "failCgroupV1": False,
            "failSwapOn": False,
            # Limits are for the scheduler: a tenth of a processor would start Ray in minutes.
            "cpuCFSQuota": False,
            "clusterDNS": [DNS_SERVICE],
            "clusterDomain": DNS_ZONE,
            "resolvConf": "",
            # A full disk is this machine's, and evicts nothing.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": dict.fromkeys(
                ("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
            ),
            "oomScoreAdj": 0,
        }
        path.write_text(yaml.safe_dump(said))
        return path

    def _identity(self, user: str, *groups: str) -> Path:
        return self.authority.kubeconfig(user, groups)

    def _start(self, program: str, *words: str, ready: Callable[[], object] = lambda: True) -> None:
        built = BIN / program
        command = [str(built) if built.exists() else program, *words]
        log = self.machine.logs / program
        inside = self.machine.inside.command(*command)
        self.running.enter_context(server(inside, log, ready=ready, env=environment(PATH=PATH)))

    def _answers(self, url: str) -> bool:
        return self._runs("curl", "--silent", "--fail", "--insecure", "--max-time", "5", url)

    def _runs(self, *words: str) -> bool:
        return self.machine.inside.run(*words).returncode == 0
