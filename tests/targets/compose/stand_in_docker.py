"""`docker` without an engine: what its commands would have made is in a file.

Run as a program, it is the command. STAND_IN_LIBRARIES names the folder of Python's packages, and
STAND_IN_DOCKER its own, which has

state.json   containers, volumes and networks, by their names; what `info` says beside INFO; and
             "ends", by the service: what its process says when it ends at the next `up`
calls.jsonl  the arguments of each call, and which variables of secrets it had
fail.json    what a command says instead of doing it: "compose up" -> its error
"""

import json
import os
import sys
from pathlib import Path

FOLDER, LIBRARIES = "STAND_IN_DOCKER", "STAND_IN_LIBRARIES"
PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
HOST = {"cpus": 16, "memory": 64 * 2**30}
INFO = {"ServerVersion": "28.5.1", "SecurityOptions": ["name=seccomp,profile=builtin"]}
SECRETS = "SUNSPOT_"
OWNER = "sunspot.owner"


def labels(one):
    return {PROJECT: one["project"], SERVICE: one.get("service", ""), OWNER: one["owner"]}


def services(docker, state="running"):
    """The services of the stand-in's containers in a state."""
    found = docker().state["container"].values()
    return {one["service"] for one in found if one["state"] == state}


class StandIn:
    """The state of an engine, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        file = folder / "state.json"
        empty = {"container": {}, "volume": {}, "network": {}, "images": []}
        self.state = json.loads(file.read_text()) if file.exists() else empty

    def save(self):
        (self.folder / "state.json").write_text(json.dumps(self.state))

    def fail(self, **commands):
        """Makes a command fail, whose words are joined with underscores, with what it says."""
        failing = {name.replace("_", " "): said for name, said in commands.items()}
        (self.folder / "fail.json").write_text(json.dumps(failing))

    def calls(self):
        file = self.folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def add(self, kind, name, project, owner, **more):
        self.state[kind][name] = {"project": project, "owner": owner, **more}
        self.save()

    # The commands

    def run(self, arguments):
        words = [one for one in arguments if not one.startswith("-")]
        fixed = {
            "context inspect": f"unix://{self.folder}/docker.sock",
            "version": "28.5.1",
            "compose version": "2.40.3",
            "info": self.info(str(arguments)),
            "logs": self.state["container"].get(words[-1], {}).get("log", "Ray runtime started"),
        }
        for command, answer in fixed.items():
            if " ".join(words).startswith(command):
                return answer
        return self.about_things(words, arguments)

    def info(self, asked):
        if "json" in asked:
            return json.dumps(INFO | self.state.get("info", {}))
        if "RootDir" in asked:
            return str(self.folder)
        return f"{HOST['cpus']} {HOST['memory']} {self.state.get('architecture', 'x86_64')}"

    def about_things(self, words, arguments):
        match words:
            case ["ps", *_]:
                return self.list("container", arguments)
            case [("volume" | "network") as kind, "ls", *_]:
                return self.list(kind, arguments)
            case [("volume" | "container") as kind, "inspect", *names]:
                return self.inspect(kind, names)
            case ["image", "inspect", name] if name in self.state["images"]:
                return json.dumps([{"Id": name}])
            case ["image", "inspect", name]:
                sys.exit(f"Error: No such image: {name}")
            case ["volume", "rm", name]:
                return self.state["volume"].pop(name) and name
            case ["compose", *_]:
                return self.compose(arguments)
        sys.exit(f"the stand-in does not know: docker {arguments}")

    def list(self, kind, arguments):
        if "{{.Ports}}" in arguments:
            return ""
        filters = [one for one in arguments if one.startswith("label=")]
        wanted = dict(one.removeprefix("label=").split("=") for one in filters)
        found = self.state[kind].items()
        return "\n".join(n for n, one in found if wanted.items() <= labels(one).items())

    def inspect(self, kind, names):
        found = [(name, self.state[kind][name]) for name in names if name in self.state[kind]]
        if len(found) < len(names):
            print("Error: No such thing", file=sys.stderr)
        return json.dumps([self.described(name, one) for name, one in found])

    def described(self, name, one):
        return {
            "Id": name,
            "Name": name,
            "Labels": labels(one),
            "Config": {"Labels": labels(one), "WorkingDir": "/home/ray"},
            "State": {"Status": one.get("state", "")},
        }

    def compose(self, arguments):
        # It begins without them, which takes a tenth of the time.
        sys.path.append(os.environ[LIBRARIES])
        import yaml

        project = arguments[arguments.index("--project-name") + 1]
        rest = arguments[arguments.index("--project-name") + 2 :]
        if rest[0] == "--file":
            document = yaml.safe_load(Path(rest[1]).read_text())
            command, names = rest[2], rest[3:]
        else:
            document, command, names = None, rest[0], rest[1:]
        services = document["services"] if document else {}
        known = [name for name in names if name in services]
        if command == "config":
            return json.dumps({"services": {name: services[name] for name in known}})
        if command == "up":
            self.up(project, document, known)
        elif command == "stop":
            self.each(project, known, lambda one: one | {"state": "exited"})
        elif command == "rm":
            self.each(project, known, lambda _: None)
        elif command == "down":
            for kind in ("container", "network"):
                kept = {n: o for n, o in self.state[kind].items() if o["project"] != project}
                self.state[kind] = kept
        return f" {command} done"

    def up(self, project, document, names):
        owner, ends = document["x-labels"][OWNER], self.state.pop("ends", {})
        for name in ["prepare", *names]:
            state = "exited" if name == "prepare" else "running"
            one = {"project": project, "owner": owner, "service": name, "state": state}
            if log := ends.get(name):
                one |= {"state": "exited", "log": log}
            self.state["container"][f"{project}-{name}-1"] = one
        for name in document["volumes"]:
            self.state["volume"][f"{project}_{name}"] = {"project": project, "owner": owner}
        self.state["network"][f"{project}_default"] = {"project": project, "owner": owner}
        if ends:
            self.save()
            sys.exit("".join(f"container {project}-{name}-1 exited (1)" for name in ends))

    def each(self, project, names, change):
        for name in names:
            container = f"{project}-{name}-1"
            one = self.state["container"].pop(container, None)
            if one and (changed := change(one)):
                self.state["container"][container] = changed


def main(arguments):
    stand_in = StandIn(Path(os.environ[FOLDER]))
    given = sorted(name for name in os.environ if name.startswith(SECRETS))
    call = {"arguments": arguments, "variables": given}
    with (stand_in.folder / "calls.jsonl").open("a") as file:
        file.write(json.dumps(call) + "\n")
    failing = stand_in.folder / "fail.json"
    said = json.loads(failing.read_text()) if failing.exists() else {}
    line = " ".join(one for one in arguments if not one.startswith("-"))
    for command, error in said.items():
        first, *others = command.split()
        if line.startswith(first) and all(f" {other}" in line for other in others):
            print(error, file=sys.stderr)
            sys.exit(1)
    print(stand_in.run(arguments))
    stand_in.save()


if __name__ == "__main__":
    main(sys.argv[1:])
