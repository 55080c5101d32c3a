"""Sends a folder of its own and a variable to its tasks, as many tutorials do."""

from pathlib import Path

import ray

folder = Path("parts")
folder.mkdir(exist_ok=True)
(folder / "greeting.py").write_text("WHERE = 'its own folder'\n")

ray.init(runtime_env={"working_dir": "./parts", "env_vars": {"GREETING": "hello"}})


@ray.remote
def greet():
    import os

    from greeting import WHERE

    return f"{os.environ['GREETING']} from {WHERE}"


print(ray.get(greet.remote()))
