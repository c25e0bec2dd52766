"""Runs as archives: what goes in, what is taken in, and all that is refused."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
import synthetic_run
from synthetic_run import Options

from fleetmark import archive, store
from fleetmark.errors import ConfigError, FleetmarkError, ResultError
from fleetmark.tables.build import open_tables


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> store.RunDirectory:
    made = synthetic_run.write(tmp_path_factory.mktemp("here"), Options(configs=("dw1",)))
    (made.path / "report.html").write_text("<p>made again at any time</p>")
    return made


@pytest.fixture
def packed(run: store.RunDirectory, tmp_path: Path) -> Path:
    path = tmp_path / "run.tar.gz"
    archive.export(run, path)
    return path


def contents(run: store.RunDirectory) -> dict[str, bytes]:
    stored = (*store.evidence_files(run), Path(store.SUMS_NAME))
    return {name.as_posix(): (run.path / name).read_bytes() for name in stored}


def refused(source: Path, results: Path) -> FleetmarkError:
    """The error, once it is sure that nothing was left behind."""
    with pytest.raises(FleetmarkError) as caught:
        archive.bring_in(source, results)
    assert list(results.iterdir()) == []
    return caught.value


def test_an_archive_holds_the_evidence_and_its_checksums_alone(
    run: store.RunDirectory, packed: Path
) -> None:
    with tarfile.open(packed) as tar:
        members = tar.getmembers()
    assert sorted(m.name for m in members) == sorted(f"{run.run_id}/{n}" for n in contents(run))
    assert {(m.uid, m.uname, m.mode) for m in members} == {(0, "", 0o644)}


def test_the_same_run_gives_the_same_bytes(
    run: store.RunDirectory, packed: Path, tmp_path: Path
) -> None:
    files = archive.export(run, tmp_path / "deep" / "again.tar.gz")
    assert files == len(contents(run)) - 1
    assert (tmp_path / "deep" / "again.tar.gz").read_bytes() == packed.read_bytes()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["again.tar.gz"]


def test_an_archive_is_never_written_over(run: store.RunDirectory, packed: Path) -> None:
    before = packed.read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        archive.export(run, packed)
    assert packed.read_bytes() == before


@pytest.mark.parametrize("as_archive", [True, False])
def test_a_run_comes_over_whole_and_gives_the_same_numbers(
    run: store.RunDirectory, packed: Path, tmp_path: Path, as_archive: bool
) -> None:
    elsewhere = tmp_path / "copied under another name"
    shutil.copytree(run.path, elsewhere)
    imported = archive.bring_in(packed if as_archive else elsewhere, tmp_path / "there")
    assert imported.run.path == tmp_path / "there" / run.run_id
    assert contents(imported.run) == contents(run)
    assert imported.files == len(contents(run)) - 1
    assert not (imported.run.path / "report.html").exists()
    assert [p.name for p in (tmp_path / "there").iterdir()] == [run.run_id]
    assert open_tables(imported.run).rows("steps") == open_tables(run).rows("steps")


def test_a_run_that_is_there_is_left_as_it_is(packed: Path, tmp_path: Path) -> None:
    there = archive.bring_in(packed, tmp_path / "there").run
    (there.path / "own notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=f"{there.run_id} is in .* already"):
        archive.bring_in(packed, tmp_path / "there")
    assert (there.path / "own notes.txt").read_text() == "mine"
    assert [p.name for p in (tmp_path / "there").iterdir()] == [there.run_id]


def test_a_damaged_run_is_refused_with_the_file(run: store.RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "copy")
    (tmp_path / "copy" / "plan.json").write_text("{}")
    (tmp_path / "copy" / "added.txt").write_text("x")
    error = refused(tmp_path / "copy", tmp_path / "there")
    assert isinstance(error, ResultError)
    assert error.evidence.splitlines() == [
        "added.txt: not in SHA256SUMS",
        "plan.json: checksum differs",
    ]


def test_a_run_without_checksums_is_not_taken_in_nor_exported(tmp_path: Path) -> None:
    going = synthetic_run.write(tmp_path / "here", Options(ended=False))
    assert "has no SHA256SUMS" in str(refused(going.path, tmp_path / "there"))
    with pytest.raises(ResultError, match="has no SHA256SUMS"):
        archive.export(going, tmp_path / "going.tar.gz")
    assert not (tmp_path / "going.tar.gz").exists()


def repacked(packed: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    """The archive with one more member."""
    path = packed.with_name("other.tar.gz")
    with tarfile.open(packed) as old, tarfile.open(path, "w:gz") as new:
        for kept in old:
            new.addfile(kept, old.extractfile(kept))
        member.size = len(content)
        new.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "name", ["../evil", "run/../../evil", "/tmp/fleetmark-evil", "run.json", "x/../evil"]
)
def test_names_that_lead_elsewhere_are_refused(packed: Path, tmp_path: Path, name: str) -> None:
    error = refused(repacked(packed, tarfile.TarInfo(name), b"x"), tmp_path / "there")
    assert isinstance(error, ResultError)
    assert repr(name) in error.message
    assert not list(tmp_path.rglob("evil"))
    assert not Path("/tmp/fleetmark-evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(packed: Path, tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("run/hosts")
    member.type, member.linkname = kind, "/etc"
    error = refused(repacked(packed, member), tmp_path / "there")
    assert "'run/hosts'" in error.message


def test_a_link_in_a_directory_is_refused(run: store.RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "copy")
    (tmp_path / "copy" / "hosts" / "more").symlink_to("/etc")
    assert "more is a link" in refused(tmp_path / "copy", tmp_path / "there").message


def test_one_name_twice_is_refused(run: store.RunDirectory, packed: Path, tmp_path: Path) -> None:
    again = repacked(packed, tarfile.TarInfo(f"{run.run_id}/plan.json"), b"{}")
    error = refused(again, tmp_path / "there")
    assert isinstance(error, ResultError)
    assert "plan.json' twice" in error.message


@pytest.mark.parametrize("told", ["../../elsewhere", "latest", "", None, 7])
def test_a_run_that_tells_no_id_is_refused(
    run: store.RunDirectory, tmp_path: Path, told: object
) -> None:
    shutil.copytree(run.path, tmp_path / "copy")
    document = store.read_json(run.run_json)
    (tmp_path / "copy" / "run.json").write_text(json.dumps({**document, "run": told}))
    assert "is no id of a run" in refused(tmp_path / "copy", tmp_path / "there").message


def test_an_archive_that_was_cut_off_is_refused(packed: Path, tmp_path: Path) -> None:
    data = packed.read_bytes()
    for content in (data[: len(data) // 2], b"no archive at all", b""):
        packed.write_bytes(content)
        error = refused(packed, tmp_path / "there")
        assert isinstance(error, ResultError)
        assert "cannot be read as a .tar.gz" in error.message


def test_what_is_no_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere is not there"):
        archive.bring_in(tmp_path / "nowhere", tmp_path / "there")
    (tmp_path / "empty").mkdir()
    assert "there is no run.json in it" in str(refused(tmp_path / "empty", tmp_path / "there"))
