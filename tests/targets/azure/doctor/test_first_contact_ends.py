"""`sunspot doctor --first-contact` where something ends it early, or there is another one."""

import errno
import signal

from azure_stacks import run
from contact_runs import ALL, Run, interrupt, is_gone
from ssh_server import needs_sshd

from sunspot import stack as stacks
from sunspot.targets.azure.first_contact import head_jobs
from sunspot.targets.azure.first_contact.contact import TO_REMOVE, FirstContact
from sunspot.targets.azure.first_contact.on_site import DOWN
from sunspot.targets.protocol import silent

pytestmark = needs_sshd

# A second one, and another's


def test_a_second_one_beside_it_is_refused_and_the_first_goes_on(contact, monkeypatch):
    seen = []

    def beside(*_):
        seen.append(run("doctor", "--first-contact", "x", "--yes"))
        seen.append(contact.stack_file.exists())
        return {"changes": "seen"}

    monkeypatch.setattr(head_jobs.HeadJobs, "part", lambda *_: str(beside()))
    contact("--yes")
    second, file_is_there = seen[:2]
    assert second.exit_code == 2
    assert "another first contact" in second.stderr
    assert file_is_there
    assert contact.fake.calls.count("destroy True") == 1
    assert is_gone(contact)
    assert not list(contact.target.records.root.glob(".*.running"))


def test_a_stack_of_that_name_that_only_pulumi_knows_is_left_alone(contact):
    contact.fake.now = contact.fake.made
    result = contact("--yes", code=2)
    assert "first-contact" in result.stderr
    assert not {"up", "destroy True", "remove"} & set(contact.fake.calls)
    assert not contact.stack_file.exists()


# A terminal that is closed, and Ctrl-C


def test_a_closed_terminal_does_not_keep_the_cluster_up(contact, monkeypatch):
    heard = []

    def destroy(*_, **__):
        heard.append(signal.getsignal(signal.SIGHUP))
        contact.fake.now = ()

    def gone(text):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(head_jobs.HeadJobs, "part", interrupt)
    monkeypatch.setattr(contact.fake, "destroy", destroy)
    before = signal.getsignal(signal.SIGHUP)
    place = contact.target
    with place.first_contact(stacks.load("x")) as prepared:
        prepared.findings(silent)
        made = prepared.make(contact.report, gone, gone)
    assert made.interrupted
    assert not made.remains
    assert heard == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGHUP) is before
    assert not contact.stack_file.exists()


def test_an_interrupt_between_two_steps_tells_what_remains(contact, monkeypatch):
    monkeypatch.setattr(head_jobs.HeadJobs, "part", interrupt)
    monkeypatch.setattr(FirstContact, "_end", interrupt)
    result = contact("--yes", code=130)
    assert TO_REMOVE in result.stderr.splitlines()[-1]
    assert contact.stack_file.exists()


def test_ctrl_c_takes_everything_down_and_says_so(contact, monkeypatch):
    monkeypatch.setattr(Run, "growth", lambda _: iter([]))
    monkeypatch.setattr(head_jobs.HeadJobs, "part", interrupt)
    result = contact("--yes", code=130)
    assert TO_REMOVE in result.stderr
    rest = dict.fromkeys(ALL[2:-1], "not tried")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | rest
    assert contact.document()["ended"] == "interrupted"
    assert is_gone(contact)


def test_ctrl_c_while_it_comes_up_takes_down_what_there_is(contact, monkeypatch):
    def up(_):
        contact.fake.now = contact.fake.made
        raise KeyboardInterrupt

    monkeypatch.setattr(contact.fake, "up", up)
    result = contact("--yes", code=130)
    assert contact.outcomes()[DOWN] == "ok"
    assert "sunspot up first-contact" not in result.stderr  # nothing is there to go on with
    assert is_gone(contact)


def test_a_second_ctrl_c_tells_what_remains_and_the_next_first_contact_removes_it(
    contact, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(head_jobs.HeadJobs, "part", interrupt)
        patch.setattr(contact.fake, "destroy", lambda *_, **__: interrupt())
        result = contact("--yes", code=130)
    assert TO_REMOVE in result.stderr.splitlines()[-1]
    assert contact.document()["ended"] == "cut off"
    assert contact.stack_file.exists()
    assert contact.target.names() == ["first-contact"]
    contact.fake.calls.clear()
    contact("--yes")
    assert contact.fake.calls.index("destroy True") < contact.fake.calls.index("up")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok")
    assert is_gone(contact)


def test_where_the_next_one_is_refused_the_rest_of_the_first_can_still_be_removed(
    contact, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(head_jobs.HeadJobs, "part", interrupt)
        patch.setattr(contact.fake, "destroy", lambda *_, **__: interrupt())
        contact("--yes", code=130)
    contact(code=2)
    assert contact.stack_file.exists()
    words = TO_REMOVE.split()[1:]
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert contact.target.names() == []
