"""The copy on disk: whole, or none."""

from pathlib import Path

from schemas.ids import LogId
from services.fleet.damage import Seen
from services.router import disk
from services.router.endpoints import Table
from services.router.routing import Routing
from services.runtime.names import own_name


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """# spec: T9"""
    copy = Routing(Table()).copy(Seen(LogId("a"), 7))
    assert disk.load(tmp_path) is None
    assert disk.save(tmp_path / "new", copy)
    assert disk.load(tmp_path / "new") == copy


def test_a_torn_copy_counts_as_none(tmp_path: Path) -> None:
    """# spec: T9"""
    for content in (b"", b'{"seen":', b"[]"):
        (tmp_path / disk.COPY).write_bytes(content)
        assert disk.load(tmp_path) is None


def test_a_disk_that_refuses_costs_nothing_else(tmp_path: Path) -> None:
    """# spec: T9"""
    (tmp_path / "file").write_bytes(b"")
    assert not disk.save(tmp_path / "file", Routing(Table()).copy(None))


def test_the_name_made_on_the_first_start_stays(tmp_path: Path) -> None:
    first = own_name(tmp_path, "router")
    assert first.startswith("router-")
    assert own_name(tmp_path, "router") == first
    assert own_name(tmp_path / "other", "router") != first
