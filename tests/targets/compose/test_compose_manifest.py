"""The file that Compose reads: what every container is given, and what it is not."""

import json
import re

import pytest
import yaml
from compose_stacks import AMD, NVIDIA, group, host, stack

from sunspot import monitoring
from sunspot.ray import ports, start
from sunspot.targets.compose import (
    manifest,
    plan,
    published,
    ray_nodes,
    secret_files,
    services,
)

PORTS = {
    "dashboard": 28265,
    "client": 20001,
    "grafana": 23000,
    "prometheus": 29090,
    "s3": 29000,
    "jupyter": 28888,
}


@pytest.fixture
def folder(tmp_path):
    """A project's folder, from which Jupyter's image can be built."""
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "jupyter.Dockerfile").touch()
    return tmp_path


def text(described, on, folder):
    return manifest.text(plan.make(described, on, folder), PORTS, "me")


def compose(described, on, folder):
    """The file's content, with each doubled dollar sign as the containers see it."""
    return yaml.safe_load(text(described, on, folder).replace("$$", "$"))


TWO = (group("gpu", gpus=1, minimum=2),)


def test_each_worker_has_its_own_gpu_of_nvidia(folder):
    made = compose(stack(*TWO), NVIDIA, folder)["services"]
    devices = {
        name: one["deploy"]["resources"]["reservations"]["devices"]
        for name, one in made.items()
        if "deploy" in one
    }
    assert devices == {
        f"gpu-{number + 1}": [
            {"driver": "nvidia", "device_ids": [str(number)], "capabilities": ["gpu"]}
        ]
        for number in range(2)
    }


def test_nothing_else_sees_a_gpu_of_nvidia(folder):
    made = compose(stack(*TWO), NVIDIA, folder)["services"]
    ours = {name: one for name, one in made.items() if "rayproject/ray" in one["image"]}
    hidden = {
        name
        for name, one in ours.items()
        if one.get("environment", {}).get("NVIDIA_VISIBLE_DEVICES") == "void"
    }
    # `prepare` only changes owners, and is root: it has no network, and one capability.
    assert ours.keys() - hidden == {"gpu-1", "gpu-2", "prepare"}
    assert made["prepare"]["network_mode"] == "none"
    assert made["prepare"]["cap_drop"] == ["ALL"]


def test_each_worker_has_its_own_gpu_of_amd(folder):
    made = compose(stack(*TWO, image="mine/rocm:1"), AMD, folder)["services"]
    devices = {name: one["devices"] for name, one in made.items() if "devices" in one}
    assert devices == {
        f"gpu-{number + 1}": [f"{file}:{file}" for file in ("/dev/kfd", f"/dev/dri/renderD{minor}")]
        for number, minor in enumerate((128, 129))
    }
    assert made["gpu-1"]["group_add"] == ["44", "109"]


def test_logical_gpus_are_flags_of_ray(folder):
    made = compose(stack(*TWO), host(), folder)["services"]["gpu-1"]
    assert "--num-gpus=1" in made["command"]
    assert not {"devices", "deploy", "group_add"} & made.keys()


def test_ray_train_takes_logical_gpus_for_none(folder):
    preload, module = "RAY_preload_python_modules", "local-logical_gpus.py"
    logical = compose(stack(*TWO), host(), folder)
    assert logical["services"]["gpu-1"]["environment"][preload] == ray_nodes.PRELOAD
    assert module in logical["configs"]
    for others in (compose(stack(*TWO), NVIDIA, folder), compose(stack(group()), host(), folder)):
        assert preload not in next(
            one["environment"] for name, one in others["services"].items() if name.endswith("-1")
        )
        assert module not in others["configs"]


def test_limits_are_those_of_the_stack(folder):
    made = compose(stack(group(memory_gb=6.5)), host(), folder)["services"]
    assert (made["workers-1"]["mem_limit"], made["workers-1"]["cpuset"]) == ("6.5g", "2-5")
    assert (made["head"]["mem_limit"], made["head"]["cpuset"]) == ("8g", "0-1")
    assert f"--memory={int(6.5 * 2**30)}" in made["workers-1"]["command"]


def test_every_port_is_on_the_loopback_address(folder):
    made = compose(stack(group()), host(), folder)["services"]
    opened = [port for one in made.values() for port in one.get("ports", [])]
    assert len(opened) == len(PORTS)
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in opened)
    assert f"127.0.0.1:{PORTS['dashboard']}:{ports.get('dashboard').number}" in opened
    assert not [name for name, one in made.items() if one.get("network_mode") == "host"]


def test_a_secret_is_a_variables_name_and_nothing_more(folder):
    made = compose(stack(group()), host(), folder)
    assert made["secrets"] == {
        name: {"environment": variable} for name, variable in secret_files.VARIABLES.items()
    }
    for name, one in made["services"].items():
        environment = one.get("environment", {})
        assert not {k for k in environment if re.search("SECRET|PASSWORD", k)}, name
        assert not environment.keys() & set(secret_files.VARIABLES.values()), name


def sources(service):
    """The secrets that a service gets."""
    return {one["source"] for one in service["secrets"]}


def test_secrets_and_configs_are_readable_for_whoever_the_user_is(folder):
    made = compose(stack(group()), host(), folder)["services"]
    given = [
        one
        for service in made.values()
        for kind in ("secrets", "configs")
        for one in service.get(kind, [])
    ]
    assert len(given) > len(secret_files.VARIABLES)
    # No uid and gid, which Compose would look up in the image (docker/compose#12467).
    assert {key for one in given for key in one} == {"source", "target", "mode"}
    assert {one["mode"] for one in given} == {0o444}
    assert "mode: 0444\n" in text(stack(group()), host(), folder)


def test_every_ray_node_asks_for_the_token(folder):
    made = compose(stack(group()), host(), folder)["services"]
    for name in ("head", "workers-1", "metrics", "jupyter"):
        assert made[name]["environment"]["RAY_AUTH_MODE"] == "token"
        path = made[name]["environment"]["RAY_AUTH_TOKEN_PATH"]
        assert path.rpartition("/")[2] in sources(made[name])


def test_workloads_find_the_bucket_without_a_flag(folder):
    made = compose(stack(group()), host(), folder)["services"]
    for name in ("head", "workers-1", "jupyter"):
        environment = made[name]["environment"]
        assert environment["SUNSPOT_STORAGE"] == "s3://ray"
        assert environment["AWS_ENDPOINT_URL"] == f"http://s3:{services.S3_PORT}"
        credentials = environment["AWS_SHARED_CREDENTIALS_FILE"]
        assert credentials.rpartition("/")[2] in sources(made[name])


def test_nodes_and_jupyter_can_read_the_hosts_data(folder):
    made = compose(stack(group(), data={"/srv/food/": "/mnt/Food-11"}), host(), folder)["services"]
    mounted = {
        name: [one for one in service.get("volumes", []) if isinstance(one, dict)]
        for name, service in made.items()
    }
    assert {name for name, found in mounted.items() if found} == {
        *("head", "workers-1", "workers-2", "jupyter")
    }
    (of_worker,) = mounted["workers-1"]
    assert (of_worker["source"], of_worker["target"]) == ("/srv/food", "/mnt/Food-11")
    assert of_worker["read_only"]
    assert of_worker["bind"] == {"create_host_path": False}
    # Beside what they have anyway.
    assert "ray:/tmp/ray:nocopy" in made["head"]["volumes"]


def test_only_the_minimum_starts_by_itself(folder):
    made = compose(stack(group(minimum=1, maximum=3)), host(), folder)["services"]
    assert [name for name, one in made.items() if "profiles" in one] == ["workers-2", "workers-3"]


def test_servers_wait_for_health_and_every_one_has_a_check(folder):
    made = compose(stack(group()), host(), folder)["services"]
    assert {name for name, one in made.items() if "healthcheck" not in one} == {"prepare"}
    for name, one in made.items():
        for needed, condition in one.get("depends_on", {}).items():
            done = "service_completed_successfully" if needed == "prepare" else "service_healthy"
            assert condition == {"condition": done}, (name, needed)
    assert set(made["head"]["depends_on"]) == {"prepare", "s3"}


def test_no_server_is_asked_through_the_proxy_of_dockers_own_settings(folder):
    made = compose(stack(group()), host(), folder)["services"]
    for name, one in made.items():
        given = one.get("environment", {})
        if "wget" in str(one.get("healthcheck")):
            assert (given["HTTP_PROXY"], given["http_proxy"]) == ("", ""), name
        elif "AWS_ENDPOINT_URL" in given:
            assert given["NO_PROXY"] == given["no_proxy"]
            assert {"s3", "head", "prometheus", "127.0.0.1"} <= set(given["no_proxy"].split(",")), (
                name
            )
            assert not {"HTTP_PROXY", "http_proxy"} & given.keys()


def test_logs_are_limited(folder):
    made = compose(stack(group()), host(), folder)["services"]
    assert all("max-size" in one["logging"]["options"] for one in made.values())


def test_images_that_are_not_rays_or_built_are_named_by_digest(folder):
    made = compose(stack(group()), host(), folder)["services"]
    others = {
        one["image"]
        for one in made.values()
        if "build" not in one and not one["image"].startswith("rayproject/")
    }
    assert others == {services.S3, monitoring.PROMETHEUS, monitoring.GRAFANA}
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in others)


def test_every_volume_is_written_by_the_containers_user(folder):
    made = compose(stack(group(), user="4242:7"), host(), folder)
    prepared = made["services"]["prepare"]["entrypoint"]
    assert prepared[:2] == ["chown", "4242:7"]
    assert [path.rpartition("/")[2] for path in prepared[2:]] == list(made["volumes"])
    users = {name: one["user"] for name, one in made["services"].items() if name != "prepare"}
    assert set(users.values()) == {"4242:7"}


def test_prometheus_and_grafana_have_the_files_of_azures_head(folder):
    made = compose(stack(group()), host(), folder)
    found = made["configs"]
    for name, path in monitoring.files().items():
        content = found[name.replace("/", "-")]["content"]
        same = content.replace("metrics:8081", "127.0.0.1:8081").replace(
            "http://prometheus:9090", "http://127.0.0.1:9090"
        )
        assert same == path.read_text(), name
    mounted = {one["target"] for one in made["services"]["grafana"]["configs"]}
    assert "/etc/grafana/dashboards/sunspot.json" in mounted


def test_every_config_that_a_service_names_is_there(folder):
    made = compose(stack(group()), host(), folder)
    named = {
        config["source"] for one in made["services"].values() for config in one.get("configs", [])
    }
    assert named == made["configs"].keys()


def test_what_is_switched_off_is_not_there(folder):
    off = stack(group(), monitoring=False, storage=False, jupyter=False)
    made = compose(off, host(), folder)
    assert made["services"].keys() == {"prepare", "head", "workers-1", "workers-2"}
    assert made["volumes"].keys() == {"ray"}
    assert made["secrets"].keys() == {"ray-token"}
    assert "SUNSPOT_STORAGE" not in made["services"]["head"]["environment"]
    assert "RAY_GRAFANA_HOST" not in made["services"]["head"]["environment"]


def test_grafanas_address_is_the_browsers(folder):
    head = compose(stack(group()), host(), folder)["services"]["head"]["environment"]
    assert head["RAY_GRAFANA_IFRAME_HOST"] == f"http://127.0.0.1:{PORTS['grafana']}"
    assert head["RAY_GRAFANA_HOST"] == f"http://grafana:{ports.get('grafana').number}"


def test_the_hosts_cost_is_the_heads(folder):
    made = compose(stack(group(), usd_per_hour=1.5), host(), folder)["services"]["metrics"]
    assert json.loads(made["environment"]["SUNSPOT_PRICES"]) == {"head": 1.5, "workers": 0.0}


def test_a_dollar_sign_is_not_one_of_composes(folder):
    written = text(stack(group()), host(), folder)
    assert not re.search(r"(?<!\$)\$(?!\$)", written)
    assert "$(cat" in compose(stack(group()), host(), folder)["services"]["s3"]["entrypoint"][2]


def test_a_person_can_read_it(folder):
    written = text(stack(*TWO), NVIDIA, folder)
    assert "  gpu-1:\n    <<: *node\n" in written
    assert "# A worker of the group gpu, with GPU 0." in written
    assert "# SUNSPOT_S3_CREDENTIALS has" in written
    assert "S3_CREDENTIALS" not in text(stack(*TWO, storage=False), NVIDIA, folder)
    assert written == text(stack(*TWO), NVIDIA, folder)


def test_a_built_image_is_built_once(folder):
    (folder / "image").mkdir()
    (folder / "image" / "Dockerfile").touch()
    built = stack(group())
    built = built.model_copy(update={"image": built.image.model_copy(update={"context": "image"})})
    made = compose(built, host(), folder)["services"]
    assert made["head"]["build"] == {"context": str(folder / "image"), "dockerfile": "Dockerfile"}
    assert "build" not in made["workers-1"]
    assert made["workers-1"]["image"] == made["head"]["image"] == "sunspot-course-ray"
    assert made["jupyter"]["build"]["args"] == {"BASE_IMAGE": "sunspot-course-ray"}
    assert services.builds(plan.make(built, host(), folder)) == ["head", "jupyter"]


def test_ray_knows_every_flag(folder):
    from ray.scripts import scripts

    known = {option for parameter in scripts.start.params for option in parameter.opts}
    made = compose(stack(group()), host(), folder)["services"]
    for name in ("head", "workers-1"):
        flags = {flag.partition("=")[0] for flag in made[name]["command"]}
        assert flags <= known
        switches = {flag[2:] for flag in made[name]["command"] if "=" not in flag}
        assert switches <= start.SWITCHES


def test_ports_that_are_taken_are_replaced_and_a_wish_is_kept():
    made = plan.make(stack(group(), jupyter=False), host(), plan.Path("/nowhere"))
    chosen = published.choose(made, dashboard=None, taken={8265, 9090}, claims=None)
    assert chosen["dashboard"] != 8265
    assert (chosen["client"], chosen["grafana"]) == (10001, 3000)
    assert len(set(chosen.values())) == len(chosen)
    assert published.choose(made, dashboard=4321, taken=set(), claims=None)["dashboard"] == 4321
