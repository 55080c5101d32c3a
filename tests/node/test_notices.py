"""What the head wants said now."""

import stat
import threading
import time

import pytest

from sunspot.node.notices import Notice, Notices


@pytest.fixture
def notices(tmp_path):
    return Notices(tmp_path / "notices.json")


def test_a_cluster_without_notices_has_none(notices):
    assert notices.read() == []
    notices.drop("settings")
    assert not notices.path.exists()


def test_there_is_one_notice_about_one_thing(notices):
    notices.put(Notice(about="settings", text="refused: a", since=1.0))
    notices.put(Notice(about="group:gpu", text="paused", since=2.0))
    notices.put(Notice(about="settings", text="refused: b", since=3.0))
    assert [(one.about, one.text, one.since) for one in notices.read()] == [
        ("group:gpu", "paused", 2.0),
        ("settings", "refused: b", 3.0),
    ]
    notices.drop("group:gpu")
    assert [one.about for one in Notices(notices.path).read()] == ["settings"]


def test_what_is_said_again_is_so_since_the_first_time(notices):
    notices.put(Notice(about="settings", text="refused", since=1.0))
    notices.put(Notice(about="settings", text="refused", since=2.0, until=time.time() + 60))
    (notice,) = notices.read()
    assert notice.since == 1.0
    assert notice.until is not None


def test_a_notice_ends_by_itself(notices):
    notices.put(Notice(about="idle", text="stops soon", until=time.time() - 1))
    assert notices.read() == []


def test_only_the_owner_can_read_them(notices):
    notices.put(Notice(about="settings", text="refused"))
    assert stat.S_IMODE(notices.path.stat().st_mode) == 0o600


def test_several_writers_lose_nothing(notices):
    def put(number):
        notices.put(Notice(about=f"group:{number}", text="paused"))

    writers = [threading.Thread(target=put, args=[number]) for number in range(20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert {one.about for one in notices.read()} == {f"group:{number}" for number in range(20)}


@pytest.mark.parametrize("text", ["", "nonsense", '{"about": 1}', '[{"about": "x"}]', "[1]"])
def test_a_file_that_is_not_one_says_nothing_and_is_replaced(notices, text):
    notices.path.write_text(text)
    assert notices.read() == []
    notices.put(Notice(about="settings", text="refused"))
    assert [one.about for one in notices.read()] == ["settings"]
