"""`sunspot down` on Azure: what goes, what stays, and what is told."""

from dataclasses import replace

import pytest
from azure_model.pulumi_state import ACCOUNT, GROUP, account, aks, group, machine
from azure_stacks import declared, run, up, write
from ssh_server import needs_sshd

from sunspot.errors import SunspotError, UsageError


@needs_sshd
def test_down_keeps_protected_results_and_says_so(place):
    up(place)
    tunnel = place.target.records.tunnel("x")
    assert tunnel.port()
    place.left[:] = [ACCOUNT.upper(), f"{ACCOUNT}/blobServices/default"]
    result = run("down", "x")
    assert result.exit_code == 0, result.output
    assert "no other resource on Azure of it is left" in result.stdout
    assert "sunspot down x --delete-storage" in result.stdout
    assert tunnel.port() is None
    assert place.target.names() == []
    assert not tunnel.folder.exists()


@needs_sshd
def test_down_deletes_the_results_when_told_also_later(place):
    up(place)
    run("down", "x")
    result = run("down", "x", "--delete-storage")
    assert result.exit_code == 0, result.output
    assert "no resource on Azure of it is left" in result.stdout
    assert place.fake.calls.count("destroy True") == 1
    assert "nothing to do" in run("down", "x").stdout


def test_down_of_a_stack_that_plain_pulumi_made(place):
    place.fake.now = (group(), machine())
    result = run("down", "x")
    assert result.exit_code == 0, result.output
    assert "destroy False" in place.fake.calls


@pytest.mark.parametrize("target", ["kubernetes", "azure"])
@pytest.mark.parametrize("flags", [(), ("--delete-storage",), ("--target", "azure")])
def test_aks_is_pulumis_to_delete(place, flags, target):
    write(place.project, "x", target=target)
    place.fake.now = (group(), aks(), account())
    result = run("down", "x", *flags)
    assert result.exit_code == 2, result.output
    assert "pulumi destroy --exclude-protected -s x" in result.stderr
    assert {*place.fake.calls} == {"state"}


def test_up_of_machines_from_a_file_that_describes_aks_is_refused(place):
    wanted = declared()
    write(place.project, "x", target="kubernetes")
    with pytest.raises(UsageError, match="Pulumi makes AKS and not virtual machines"):
        place.target.up(wanted, print)
    assert place.fake.calls == []


def test_down_lists_what_still_exists_and_fails(place):
    place.fake.now = (group(), machine(), account())
    place.left[:] = [ACCOUNT, f"{GROUP}/providers/Microsoft.Compute/disks/forgotten"]
    result = run("down", "x")
    assert result.exit_code == 1
    assert "disks/forgotten" in result.stderr
    assert ACCOUNT not in result.stderr
    assert "az group delete --name sunspot-x" in result.stderr


def test_down_that_cannot_be_checked_fails_and_says_how_to(place):
    def refuse(_):
        raise SunspotError("no az here")

    place.fake.now = (group(), machine())
    with pytest.raises(SunspotError, match=r"no az here.*az resource list"):
        replace(place.target, still_there=refuse).down("x", print)


def test_down_of_a_failed_up_that_made_nothing(place):
    place.fake.error = SunspotError("no")
    with pytest.raises(SunspotError):
        up(place)
    place.fake.error = None
    removal = place.target.down("x", print)
    assert removal is not None
    assert (removal.kept, removal.left) == ((), ())
    assert place.target.names() == []
    assert place.target.down("x", print) is None


def test_a_project_that_moved_is_told(place):
    place.fake.error = SunspotError("no")
    with pytest.raises(SunspotError):
        up(place)
    (place.project / "Pulumi.yaml").unlink()
    with pytest.raises(SunspotError, match="no longer in"):
        place.target.down("x", print)


@needs_sshd
@pytest.mark.parametrize("spoilt", ["{", "[]", '{"moon": 1}'])
def test_a_broken_record_does_not_keep_a_stack_up(place, spoilt):
    up(place)
    (place.target.records.folder("x") / "stack.json").write_text(spoilt)
    result = run("status", "x")
    assert result.exit_code == 1
    assert "the records of 'x' are broken" in result.stderr
    assert run("down", "x").exit_code == 0
    assert place.fake.calls.count("destroy False") == 1
    assert place.target.names() == []


def test_a_broken_record_is_told_where_the_project_is_not_known(place, tmp_path, monkeypatch):
    folder = place.target.records.folder("x")
    folder.mkdir(parents=True)
    (folder / "stack.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    result = run("down", "x")
    assert result.exit_code == 1
    assert "the records of 'x' are broken" in result.stderr
