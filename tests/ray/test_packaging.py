"""A working directory: what of it goes along, and that the same content is the same package."""

import os
import re
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sunspot.errors import UsageError
from sunspot.ray import packaging

MIB = 2**20


@pytest.fixture
def folder(tmp_path):
    """An empty working directory with a short path, for a socket's may have 107 bytes."""
    place = tmp_path / "w"
    place.mkdir()
    return place


def fill(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def collected(folder):
    return [file.path.as_posix() for file in packaging.collect(folder)]


def packed(folder):
    """The URI and the bytes of a folder's package."""
    with packaging.package(folder, packaging.collect(folder)) as package:
        content = package.file.read()
        assert len(content) == package.size
        return package.uri, content


def refusal(folder):
    with pytest.raises(UsageError) as caught:
        packaging.collect(folder)
    return str(caught.value)


# What goes along


def test_files_come_in_a_stable_order_with_their_sizes(folder):
    fill(folder, {"b.py": "12345", "a/z.py": "1", "a/b/c.txt": "", "a.py": "22"})
    files = [(file.path.as_posix(), file.size) for file in packaging.collect(folder)]
    assert files == [("a.py", 2), ("a/b/c.txt", 0), ("a/z.py", 1), ("b.py", 5)]


@pytest.mark.parametrize(
    ("ignores", "kept"),
    [
        ({".gitignore": "*.log\n"}, {"a.txt", "sub/a.txt", "sub/deep/a.txt"}),
        ({".rayignore": "*.log\n"}, {"a.txt", "sub/a.txt", "sub/deep/a.txt"}),
        # A slash binds a pattern to its own folder.
        ({".gitignore": "/a.txt\n"}, {"a.log", "sub/*", "sub/deep/*"}),
        ({"sub/.gitignore": "/a.txt\n"}, {"a.*", "sub/a.log", "sub/deep/*"}),
        # A nested file speaks for its folder and below, and has the last word there.
        ({"sub/.gitignore": "*.log\n"}, {"a.*", "sub/a.txt", "sub/deep/a.txt"}),
        ({".gitignore": "*.log\n", "sub/.gitignore": "!a.log\n"}, {"a.txt", "sub/*", "sub/deep/*"}),
        (
            {".gitignore": "*.log\n", "sub/.gitignore": "!a.log\n", "sub/deep/.rayignore": "*\n"},
            {"a.txt", "sub/a.*"},
        ),
        # .rayignore has the last word over the .gitignore beside it.
        ({".gitignore": "*.log\n", ".rayignore": "!a.log\n"}, {"a.*", "sub/*", "sub/deep/*"}),
        # What lies in a folder that is left out cannot be brought back, as in git.
        ({".gitignore": "deep/\n!deep/a.txt\n"}, {"a.*", "sub/a.*"}),
        ({".gitignore": "sub/*\n!sub/deep/\n"}, {"a.*", "sub/deep/*"}),
        # A pattern for folders leaves files of that name alone.
        ({".gitignore": "a.txt/\n"}, {"a.*", "sub/*", "sub/deep/*"}),
        ({".gitignore": "# a comment\n\n**/deep\n"}, {"a.*", "sub/a.*"}),
    ],
)
def test_ignore_files_are_honoured_in_every_folder_as_git_does(folder, ignores, kept):
    base = [f"{place}a.{kind}" for place in ("", "sub/", "sub/deep/") for kind in ("txt", "log")]
    fill(folder, dict.fromkeys(base, "x") | ignores)
    expected = {
        name
        for name in base
        if any(Path(name).parent == Path(p).parent and Path(name).match(p) for p in kept)
    }
    found = {name for name in collected(folder) if not name.endswith("ignore")}
    assert found == expected


def test_git_itself_agrees_on_what_is_ignored(folder):
    fill(
        folder,
        {
            ".gitignore": "*.log\n/build\n!keep.log\ndata/*\n!data/small/\n",
            "data/small/.gitignore": "*.bin\n!in.bin\n",
            "sub/.gitignore": "keep.log\n!x.log\n",
            **dict.fromkeys(
                ["a.log", "keep.log", "build/x", "sub/build/x", "sub/keep.log", "sub/x.log"], "x"
            ),
            **dict.fromkeys(
                ["data/big", "data/small/ok", "data/small/out.bin", "data/small/in.bin"], "x"
            ),
        },
    )
    try:
        subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)  # noqa: S607
    except FileNotFoundError:
        pytest.skip("git is not installed")
    command = [
        "git",
        "-C",
        str(folder),
        "ls-files",
        "--others",
        "--exclude-per-directory=.gitignore",
    ]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert set(collected(folder)) == set(listed)


@pytest.mark.parametrize("name", [".git", ".venv", "venv", "__pycache__"])
@pytest.mark.parametrize("place", ["", "sub/"])
def test_some_names_never_go_along(folder, name, place):
    fill(folder, {"a.py": "1", f"{place}{name}/x": "1", f"{place}{name}s/x": "1"})
    assert collected(folder) == sorted(["a.py", f"{place}{name}s/x"])


def test_the_names_that_never_go_along_are_rays_own(monkeypatch):
    from ray._private import ray_constants

    monkeypatch.delenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", raising=False)

    assert set(ray_constants.get_runtime_env_default_excludes()) == packaging.ALWAYS_IGNORED


def test_what_is_behind_a_link_goes_along_and_a_dead_one_is_skipped(folder, tmp_path):
    fill(tmp_path, {"outside.txt": "12345"})
    fill(folder, {"real.txt": "123"})
    (folder / "inner").symlink_to("real.txt")
    (folder / "outer").symlink_to(tmp_path / "outside.txt")
    (folder / "dead").symlink_to("nowhere")
    sizes = {file.path.as_posix(): file.size for file in packaging.collect(folder)}
    assert sizes == {"real.txt": 3, "inner": 3, "outer": 5}
    _, content = packed(folder)
    (folder / "z.zip").write_bytes(content)
    with zipfile.ZipFile(folder / "z.zip") as archive:
        assert archive.read("outer") == b"12345"
        assert archive.read("inner") == b"123"


def test_a_link_to_a_parent_does_not_go_round_in_circles(folder):
    fill(folder, {"sub/a.py": "1"})
    (folder / "sub" / "up").symlink_to("..")
    assert collected(folder) == ["sub/a.py"]


def test_a_link_to_itself_is_skipped(folder):
    fill(folder, {"a.py": "1"})
    (folder / "round").symlink_to("round")
    assert collected(folder) == ["a.py"]


def test_sockets_and_pipes_are_skipped(folder):
    fill(folder, {"a.py": "1"})
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        assert collected(folder) == ["a.py"]


def test_an_empty_directory_has_no_files_and_still_a_package(folder):
    (folder / "nothing" / "in").mkdir(parents=True)
    assert packaging.collect(folder) == []
    uri, content = packed(folder)
    assert uri.endswith(".zip")
    assert content


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda _path: None, "does not exist"),
        (lambda path: path.write_text("x"), "is a file, not a directory"),
        (lambda path: path.symlink_to("nowhere"), "does not exist"),
    ],
)
def test_no_directory_is_refused_with_the_flag_to_give(tmp_path, make, what):
    path = tmp_path / "work"
    make(path)
    message = refusal(path)
    assert f"the working directory {path} {what}" in message
    assert "--working-dir" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
@pytest.mark.parametrize("name", ["secret.txt", "sub"])
def test_what_cannot_be_read_is_named(folder, name):
    fill(folder, {"secret.txt": "1", "sub/a.txt": "1"})
    (folder / name).chmod(0)
    try:
        with pytest.raises(UsageError, match=re.escape(str(folder / name))):
            packed(folder)
    finally:
        (folder / name).chmod(0o700)


# The same content, the same package


def test_dates_and_place_do_not_matter(folder, tmp_path):
    other = tmp_path / "other"
    for place in (folder, other):
        fill(place, {"b/x.py": "print(1)\n" * 1000, "a.txt": "größe", "empty": ""})
    os.utime(folder / "b" / "x.py", (1, 1))  # 1970: before the first date that a zip knows
    os.utime(other / "a.txt", (2_000_000_000, 2_000_000_000))
    assert packed(folder) == packed(other)
    assert packed(folder) == packed(folder)
    uri, _ = packed(folder)
    assert re.fullmatch(r"gcs://_ray_pkg_[0-9a-f]{40}\.zip", uri)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a.sh").write_text("exit 1\n"),
        lambda folder: (folder / "a.sh").chmod(0o755),
        lambda folder: (folder / "a.sh").rename(folder / "b.sh"),
        lambda folder: fill(folder, {"more": ""}),
        lambda folder: fill(folder, {".rayignore": "a.sh"}),
    ],
    ids=["content", "mode", "name", "another", "ignored"],
)
def test_content_names_and_modes_matter(folder, change):
    fill(folder, {"a.sh": "exit 0\n", "c": "1"})
    (folder / "a.sh").chmod(0o644)
    before = packed(folder)
    change(folder)
    after = packed(folder)
    assert after[0] != before[0]
    assert after[1] != before[1]


def test_the_package_unpacks_to_the_same_files_with_their_modes(folder, tmp_path):
    fill(folder, {"sub/run.sh": "#!/bin/sh\n", "d.bin": "\0" * 100_000})
    (folder / "sub" / "run.sh").chmod(0o755)
    (folder / "d.bin").chmod(0o640)
    _, content = packed(folder)
    (tmp_path / "z.zip").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "z.zip") as archive:
        assert archive.testzip() is None
        modes = {info.filename: (info.external_attr >> 16) & 0o777 for info in archive.infolist()}
        assert archive.read("d.bin") == b"\0" * 100_000
    assert modes == {"sub/run.sh": 0o755, "d.bin": 0o640}
    assert len(content) < 10_000


def test_ray_unpacks_it(folder, tmp_path):
    """Ray's own code for packages, on a node, in a process of its own (it keeps global state)."""
    fill(folder, {"sub/x.py": "print(1)\n", "a.txt": "größe"})
    _, content = packed(folder)
    (tmp_path / "z.zip").write_bytes(content)
    script = (
        "import logging, sys\n"
        "from ray._private.runtime_env.packaging import unzip_package\n"
        "unzip_package(sys.argv[1], sys.argv[2], remove_top_level_directory=False,"
        " unlink_zip=False, logger=logging.getLogger())\n"
    )
    target = tmp_path / "unpacked"
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "z.zip"), str(target)], check=True, timeout=60
    )
    assert (target / "sub" / "x.py").read_text() == "print(1)\n"
    assert (target / "a.txt").read_text() == "größe"


# The limit


def sparse(folder, sizes):
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)


def test_exactly_the_limit_passes_and_a_byte_more_does_not(folder):
    sparse(folder, {"a": 60 * MIB, "b": 40 * MIB})
    assert len(packaging.collect(folder)) == 2
    sparse(folder, {"c": 1})
    assert "100 MiB" in refusal(folder)


def test_over_the_limit_the_five_largest_are_listed_with_a_way_out(folder):
    sizes = {f"data/{n}.bin": n * 5 * MIB for n in range(1, 8)}
    sparse(folder, sizes)
    fill(folder, {"x.py": "1"})
    message = refusal(folder)
    assert f"the working directory {folder} holds 140 MiB in 8 files" in message
    assert "at most 100 MiB" in message
    rows = re.findall(r"^ +([\d.]+) MiB  (\S+)$", message, re.MULTILINE)
    assert rows == [(f"{n * 5:.1f}", f"data/{n}.bin") for n in (7, 6, 5, 4, 3)]
    assert f"echo /data/7.bin >> {folder / '.rayignore'}" in message


def test_the_fix_that_the_message_proposes_works(folder):
    sparse(folder, {"it's [big].bin": 101 * MIB})
    fill(folder, {"x.py": "1"})
    (command,) = re.findall(r"^  (echo .*)$", refusal(folder), re.MULTILINE)
    subprocess.run(["sh", "-c", command], check=True)  # noqa: S607
    assert "x.py" in collected(folder)


def test_what_is_ignored_does_not_count(folder):
    sparse(folder, {"data/big.bin": 200 * MIB, ".venv/big.bin": 200 * MIB})
    fill(folder, {".rayignore": "data/\n", "x.py": "1"})
    assert collected(folder) == [".rayignore", "x.py"]


# What is refused before it is read


@pytest.mark.parametrize("place", ["/", "{home}", "{home}/..", "{home}/project/.."])
def test_the_root_a_home_and_what_is_above_one_are_refused_unread(tmp_path, monkeypatch, place):
    home = tmp_path / "home" / "me"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))

    def scandir(path):
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr(os, "scandir", scandir)
    given = Path(place.format(home=home))
    message = refusal(given)
    assert f"the working directory {given.resolve()} is" in message
    assert "100 MiB" in message
    assert "--working-dir" in message


def test_a_project_in_a_home_goes_along(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    fill(folder, {"project/x.py": "1"})
    assert collected(folder / "project") == ["x.py"]


def test_a_folder_of_gigabytes_is_not_looked_through_to_its_end(folder, monkeypatch):
    monkeypatch.setattr(packaging, "ENTRIES_TO_NAME", 50)
    sparse(folder, {f"{n:03}/big.bin": 200 * MIB for n in range(200)})
    seen = []

    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: seen.append(path) or real(path))
    message = refusal(folder)
    assert len(seen) < 60
    assert f"the working directory {folder} holds more than" in message
    assert "--working-dir" in message


def test_a_folder_of_too_many_files_is_refused(folder, monkeypatch):
    monkeypatch.setattr(packaging, "LIMIT_ENTRIES", 10)
    fill(folder, {f"{n}.txt": "" for n in range(10)})
    assert len(packaging.collect(folder)) == 10
    fill(folder, {"one-more.txt": ""})
    assert "at most 100 MiB in 10 files" in refusal(folder)
    fill(folder, {".rayignore": "*.txt\n"})  # what is left out does not count
    assert collected(folder) == [".rayignore"]
