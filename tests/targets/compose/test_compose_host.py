"""What a host has: asked of its own tools, which are stand-ins here."""

import socket

import pytest
from compose_stacks import group, stack

from sunspot.errors import UsageError
from sunspot.targets.compose import host as hosts
from sunspot.targets.compose.engine import Engine

HERE = Engine("")
TOPOLOGY = "simd_count 0\ndrm_render_minor 0\ndrm_render_minor 129\ndrm_render_minor 128\n"


@pytest.fixture
def nvidia(tools):
    tools.add("nvidia-smi", "printf '0\\n1\\n'")


@pytest.fixture
def amd(tools, monkeypatch, tmp_path):
    monkeypatch.setitem(hosts._SIGNS, "amd", "true")
    tools.add("stat", "printf '44\\n109\\n109\\n'")
    properties = tmp_path / "properties"
    properties.write_text(TOPOLOGY)
    monkeypatch.setattr(hosts, "_TOPOLOGY", f"cat {properties}")


@pytest.mark.parametrize("tool", ["rocm-smi", "amd-smi"])
def test_either_of_amds_tools_is_a_sign_of_its_gpus(tools, tool):
    tools.add(tool, "true")
    with pytest.raises(UsageError, match="no GPU of AMD"):  # the kernel's list has none
        hosts.gpus(HERE, "auto", needed=True)


def test_the_kernels_device_is_a_sign_of_amds_gpus_too(tools, monkeypatch, tmp_path):
    device = tmp_path / "kfd"
    sign = hosts._SIGNS["amd"].replace(hosts.KFD, str(device))
    monkeypatch.setitem(hosts._SIGNS, "amd", sign)
    assert hosts._present(HERE) is None
    device.touch()
    assert hosts._present(HERE) == "amd"


def test_gpus_of_wsl2_cannot_be_divided(nvidia, monkeypatch):
    assert hosts.gpus(HERE, "auto", needed=True).divisible
    monkeypatch.setattr(hosts, "_WSL", "true")
    assert not hosts.gpus(HERE, "auto", needed=True).divisible


def test_ports_that_something_listens_on():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert port not in hosts.listening_ports(HERE)
        one.listen()
        assert port in hosts.listening_ports(HERE)


def test_nvidias_tool_tells_its_gpus(nvidia):
    assert hosts.gpus(HERE, "auto", needed=True) == hosts.Gpus(maker="nvidia", devices=("0", "1"))


def test_the_kernel_tells_amds_gpus_and_who_may_open_them(amd):
    assert hosts.gpus(HERE, "auto", needed=True) == hosts.Gpus(
        maker="amd",
        devices=("/dev/dri/renderD128", "/dev/dri/renderD129"),
        groups=("44", "109"),
    )


def test_a_stack_without_gpus_is_not_asked_for_any(tools):
    assert hosts.gpus(HERE, "auto", needed=False).maker == "none"


def test_logical_gpus_need_no_host_with_any(tools):
    assert hosts.gpus(HERE, "none", needed=True).maker == "none"


def test_gpus_on_a_host_without_are_refused(tools):
    with pytest.raises(UsageError, match="gpu: none"):
        hosts.gpus(HERE, "auto", needed=True)


@pytest.mark.parametrize(("maker", "tool"), [("nvidia", "nvidia-smi"), ("amd", "/dev/kfd")])
@pytest.mark.parametrize("needed", [True, False])
def test_gpus_of_a_maker_whose_driver_is_not_there_are_refused(tools, maker, tool, needed):
    with pytest.raises(UsageError, match=tool):
        hosts.gpus(HERE, maker, needed=needed)


def test_a_tool_that_fails_has_no_gpus(tools):
    tools.add("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    with pytest.raises(UsageError, match="no GPU of NVIDIA"):
        hosts.gpus(HERE, "auto", needed=True)


def test_the_engine_tells_cpus_and_memory(docker):
    found = hosts.find(Engine.current(), "auto", needs_gpus=False)
    assert (found.cpus, found.memory) == (16, 64 * 2**30)


@pytest.mark.parametrize(("architecture", "arm"), [("x86_64", False), ("aarch64", True)])
def test_the_engine_tells_whether_it_is_an_arm_machine(docker, architecture, arm):
    engine = docker()
    engine.state["architecture"] = architecture
    engine.save()
    assert hosts.find(Engine.current(), "auto", needs_gpus=False).arm is arm


def test_without_an_engine_this_machine_is_looked_at(tools):
    assert hosts.find(Engine.current_or_here(), "none", needs_gpus=True).cpus >= 1


def test_the_maker_of_a_flag_replaces_the_stacks(target):
    chosen = target.with_gpus(stack(group(gpus=1), gpu="amd"), "none")
    assert target.manifest(chosen).count("--num-gpus=1") == 2
    with pytest.raises(UsageError, match="cuda"):
        target.with_gpus(chosen, "cuda")


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("ssh://me@gpu-host", ("ssh", "me@gpu-host")),
        ("ssh://gpu-host:2222", ("ssh", "-p", "2222", "gpu-host")),
    ],
)
def test_a_remote_host_is_asked_by_ssh(tools, address, command):
    engine = Engine(address)
    assert engine.ssh is not None
    assert engine.ssh.command == command
    tools.add("ssh", """case "$*" in *nvidia-smi*index*) echo 3;; *nvidia-smi*) echo yes;; esac""")
    assert hosts.gpus(engine, "auto", needed=True).devices == ("3",)


def test_a_host_that_no_tunnel_reaches_is_refused():
    with pytest.raises(UsageError, match="DOCKER_HOST=ssh://"):
        _ = Engine("tcp://10.0.0.1:2376").ssh
