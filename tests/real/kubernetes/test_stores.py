"""What the builder of images removes: stores of other recipes that nobody uses any more."""

import os
from pathlib import Path

from machines.kept import kept, locked, remove_others

DAY_S = 24 * 3600


def made(folder: Path, *, old: bool = True) -> Path:
    kept(folder, lambda part: part.mkdir(parents=True))
    if old:
        os.utime(folder.with_name(f"{folder.name}.lock"), (1, 1))
    return folder


def remove(present: Path) -> set[str]:
    remove_others(present, "images-*", DAY_S)
    return {one.name for one in present.parent.iterdir() if one.is_dir()}


def test_only_what_nobody_has_used_for_a_day_goes(tmp_path: Path):
    present = made(tmp_path / "images-b")
    made(tmp_path / "images-a")
    made(tmp_path / "images-lately", old=False)
    (tmp_path / "images-a-new-17").mkdir()
    (tmp_path / "kuberay").mkdir()
    assert remove(present) == {"images-b", "images-lately", "kuberay"}


def test_what_is_in_use_stays(tmp_path: Path):
    present, other = made(tmp_path / "images-b"), made(tmp_path / "images-a")
    with locked(other):
        os.utime(tmp_path / "images-a.lock", (1, 1))
        assert remove(present) == {"images-a", "images-b"}
    os.utime(tmp_path / "images-a.lock", (1, 1))
    assert remove(present) == {"images-b"}
