"""LOG into files and back, from and into real servers."""

import asyncio
import gzip
import hashlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import subjects
from services.control.checkpoint import write as write_checkpoint
from services.fleet.state import FleetState
from services.fleet.telling.moments import AtSequence
from services.journal import folder as folder_module
from services.journal.export import Export, Span
from services.journal.folder import MANIFEST, Folder, Torn, writing
from services.journal.importing import Import
from services.log.connect import Connection
from services.log.history import bounds
from services.log.identity import look
from services.log.message import Unavailable
from services.log.restore import restore
from services.log.state_at import NotKept, state_at
from services.log.stored import Stored
from services.log.streams import IMPORTING, create, exists, shut_log
from services.runtime.failure import Exit, Failure
from tests.support.nats_server import NatsServer
from tests.support.past import (
    LOG_ID,
    NEXT_ID,
    Past,
    age_away,
    begun,
    dump,
    followed,
    lived,
    written,
)
from tests.support.small_disk import a_small_disk
from tests.support.waiting import until

NOW = 1_800_000_000.0


async def export(connection: Connection, folder: Path, span: Span | None = None) -> list[str]:
    said: list[str] = []
    with writing(folder) as held:
        await Export(connection, held, said.append).run(span or Span())
    return said


async def load(connection: Connection, folder: Path) -> list[str]:
    said: list[str] = []
    await Import(connection, Folder(folder), said.append).run()
    await followed(connection)
    return said


def lines(folder: Path) -> list[dict[str, object]]:
    """As any tool reads them."""
    return [
        json.loads(line)
        for file in sorted(folder.glob("2*.jsonl.gz"))
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]


def messages(stored: list[Stored]) -> list[tuple[int, str, bytes]]:
    return [(each.sequence, each.subject, each.payload) for each in stored]


async def test_an_exported_log_is_imported_byte_for_byte(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(700, broken=True)
    await written(log, past)
    assert await export(log, tmp_path / "journal") == []
    await load(elsewhere, tmp_path / "journal")
    there = await lived(elsewhere)
    assert messages(there) == messages(past.messages)
    assert dump(there) == past.dump()
    found = await state_at(elsewhere, 500)
    assert isinstance(found, FleetState)
    assert found.dump() == past.dump(500)


async def test_lines_are_json_that_any_tool_reads(log: Connection, tmp_path: Path) -> None:
    past = begun()
    past.put("flotilla.log.e.odd", b"\xff\x00 no JSON")
    await written(log, past)
    await export(log, tmp_path / "journal")
    first, _, odd = lines(tmp_path / "journal")
    assert first["seq"] == 1
    assert first["subject"] == subjects.GENESIS
    assert first["event"] == json.loads(past.messages[0].payload)
    assert (odd["raw"], "event" in odd) == ("/wAgbm8gSlNPTg==", False)


async def test_a_second_export_appends_what_is_new(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(30)
    await written(log, past)
    await export(log, tmp_path / "journal")
    await export(log, tmp_path / "journal")
    await written(log, past.pass_by(20))
    assert await export(log, tmp_path / "journal") == []
    assert [line["seq"] for line in lines(tmp_path / "journal")] == list(range(1, 53))
    await load(elsewhere, tmp_path / "journal")
    assert dump(await lived(elsewhere)) == past.dump()


async def test_an_export_that_was_killed_goes_on(
    nats: NatsServer, log: Connection, tmp_path: Path
) -> None:
    await written(log, begun().pass_by(1_500))
    folder = tmp_path / "journal"
    command = [sys.executable, "-c", OFTEN, "export", str(folder), "--nats-url", nats.url]
    first = await asyncio.create_subprocess_exec(*command)
    await until(lambda: list(folder.glob("2*.gz")))
    first.send_signal(signal.SIGKILL)
    await first.wait()
    killed_at = Folder(folder).manifest.last
    assert killed_at < 1_502
    for file in folder.glob("2*.gz"):
        with file.open("ab") as torn:
            torn.write(b"\x1f\x8b" + b"half a member" * 50_000)
    second = await asyncio.create_subprocess_exec(*command)
    assert await second.wait() == Exit.YES
    assert [line["seq"] for line in lines(folder)] == list(range(1, 1_503))
    assert Folder(folder).manifest.last == 1_502


OFTEN = """
import sys
from services.journal import __main__, export
export.COMMIT_EVENTS = 20
sys.exit(__main__.main())
"""
"""The program, with so many commits that a kill meets it between two of them."""


async def test_two_exports_do_not_write_one_folder(tmp_path: Path) -> None:
    with writing(tmp_path), pytest.raises(BlockingIOError), writing(tmp_path):
        pass


async def test_what_is_not_as_exported_is_not_imported(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    await written(log, begun().pass_by(30))
    await export(log, tmp_path / "journal")
    (file,) = (tmp_path / "journal").glob("2*.gz")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(Torn):
        await load(elsewhere, tmp_path / "journal")


async def test_an_import_that_was_interrupted_goes_on(
    log: Connection, elsewhere: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = begun().pass_by(1_700)
    await written(log, past)
    await export(log, tmp_path / "journal")
    batches = 0

    async def until_killed(connection: Connection, events: list[Stored], root: str) -> None:
        nonlocal batches
        batches += 1
        if batches == 3:
            raise asyncio.CancelledError
        await restore(connection, events, root)

    with monkeypatch.context() as dying:
        dying.setattr("services.journal.importing.restore", until_killed)
        with pytest.raises(asyncio.CancelledError):
            await load(elsewhere, tmp_path / "journal")
    assert (await bounds(elsewhere)).last == 1_000
    assert await load(elsewhere, tmp_path / "journal") != []
    assert messages(await lived(elsewhere)) == messages(past.messages)


async def test_nothing_is_imported_where_another_log_stands(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    await written(log, begun().pass_by(30))
    await export(log, tmp_path / "journal")
    await create(elsewhere)
    other = Past()
    other.begin(NEXT_ID)
    await written(elsewhere, other.pass_by(4))
    with pytest.raises(Failure, match="LOG holds 5 messages, 1 to 5"):
        await load(elsewhere, tmp_path / "journal")
    assert (await bounds(elsewhere)).last == 5


async def test_nobody_else_writes_or_reads_a_log_that_is_being_imported(
    log: Connection, elsewhere: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # spec: L7
    past = begun().pass_by(1_200)
    await written(log, past)
    await export(log, tmp_path / "journal")

    async def beside_others(connection: Connection, events: list[Stored], root: str) -> None:
        await restore(connection, events, root)
        with pytest.raises(Unavailable, match="nobody answers"):
            await connection.request("flotilla.log.e.intruder", b"{}", 5.0)
        with pytest.raises(Unavailable, match="nobody answers"):
            await look(connection)
        assert IMPORTING in await create(connection)  # By a control that starts now.

    monkeypatch.setattr("services.journal.importing.restore", beside_others)
    await load(elsewhere, tmp_path / "journal")
    assert messages(await lived(elsewhere)) == messages(past.messages)
    assert (await look(elsewhere)).head == 1_202
    assert IMPORTING not in await create(elsewhere)


async def test_what_was_written_before_the_log_was_shut_is_seen(
    log: Connection, elsewhere: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(log, begun().pass_by(30))
    await export(log, tmp_path / "journal")
    await create(elsewhere)

    async def too_late(connection: Connection) -> None:
        await connection.request("flotilla.log.e.intruder", b"{}", 5.0)
        await shut_log(connection)

    monkeypatch.setattr("services.log.streams.shut_log", too_late)
    with pytest.raises(Failure, match="1 is the first that differs"):
        await load(elsewhere, tmp_path / "journal")
    assert (await look(elsewhere)).head == 1  # It is open.


async def test_another_import_that_writes_meanwhile_ends_it(
    log: Connection, elsewhere: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(log, begun().pass_by(700))
    await export(log, tmp_path / "journal")

    async def beside_another(connection: Connection, events: list[Stored], root: str) -> None:
        await restore(connection, events, root)
        await connection.request(f"{root}e.intruder", b"{}", 5.0)

    monkeypatch.setattr("services.journal.importing.restore", beside_another)
    with pytest.raises(Failure, match="another import"):
        await load(elsewhere, tmp_path / "journal")


@pytest.mark.parametrize("checkpointed", [True, False])
async def test_a_log_whose_beginning_is_gone_is_exported_with_its_documents(
    log: Connection, elsewhere: Connection, tmp_path: Path, checkpointed: bool
) -> None:
    past = begun().pass_by(80, broken=True)
    await written(log, past)
    base = (await write_checkpoint(log, NOW)).sequence if checkpointed else 0
    await written(log, past.pass_by(60))
    await age_away(log, 60)
    said = await export(log, tmp_path / "journal")
    assert said[0] == "the journal begins at 60"
    assert [line["seq"] for line in lines(tmp_path / "journal")] == list(range(60, 143))
    await load(elsewhere, tmp_path / "journal")
    there = await lived(elsewhere)
    assert messages(there)[-83:] == messages(past.messages)[59:]
    assert documents(dump(there)) == documents(past.dump())
    begins = base or 142
    events = [each.payload for each in there if b'"id":"event-' in each.payload]
    assert len(events) == len(set(events))  # None is in the base and among the events.
    for sequence in (begins, 142):
        found = await state_at(elsewhere, sequence)
        assert isinstance(found, FleetState)
        assert documents(found.dump()) == documents(past.dump(sequence))
    assert isinstance(await state_at(elsewhere, begins - 1), NotKept)


def documents(dumped: bytes) -> dict[str, dict[str, dict[str, object]]]:
    """Without sequences."""
    found: dict[str, dict[str, dict[str, object]]] = json.loads(dumped)
    for held in found["documents"].values():
        del held["sequence"]
    for held in found["gone"].values():
        del held["sequence"]
    for held in found["unreadable"].values():
        del held["sequence"]
    del found["sequence"]
    return found


async def test_a_gap_between_two_exports_is_told_and_begins_anew(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(40)
    await written(log, past)
    await export(log, tmp_path / "journal")
    await written(log, past.pass_by(60))
    await age_away(log, 80)
    said = await export(log, tmp_path / "journal")
    assert said[0] == "gap: LOG no longer holds 43 to 79"
    held = Folder(tmp_path / "journal").manifest
    assert [segment.first for segment in held.segments] == [1, 80]
    assert held.events == 42 + 23
    await load(elsewhere, tmp_path / "journal")
    assert documents(dump(await lived(elsewhere))) == documents(past.dump())


async def test_a_part_is_exported_and_imported_only_if_it_is_whole(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(100)
    await written(log, past)
    await export(log, tmp_path / "head", Span(until=AtSequence(50)))
    assert [line["seq"] for line in lines(tmp_path / "head")] == list(range(1, 51))
    part = Span(since=AtSequence(20), until=AtSequence(50))
    assert "cannot" not in (await export(log, tmp_path / "part", part))[-1]
    assert [line["seq"] for line in lines(tmp_path / "part")] == list(range(20, 51))
    with pytest.raises(Failure, match="begins at 20"):
        await load(elsewhere, tmp_path / "part")
    with pytest.raises(Failure, match="holds 1 to 50, --since begins at 60"):
        await export(log, tmp_path / "head", Span(since=AtSequence(60)))
    with pytest.raises(Failure, match="holds 20 to 50, --since begins at 10"):
        await export(log, tmp_path / "part", Span(since=AtSequence(10)))
    assert "can be read, and not imported" in (await export(log, tmp_path / "part"))[-1]
    said = await load(elsewhere, tmp_path / "head")
    assert said == []  # Nothing of sync_interval, which an import cannot ask for.
    assert dump(await lived(elsewhere)) == past.dump(50)


@pytest.mark.parametrize("name", ["2026-11-30.jsonl.gz", "base-7.jsonl.gz"])
async def test_files_that_no_manifest_knows_of_are_left_alone(
    log: Connection, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"somebody's")
    with pytest.raises(Failure, match=f"holds {name}, and no manifest.json"):
        await export(log, tmp_path)
    assert (tmp_path / name).read_bytes() == b"somebody's"


async def test_a_foreign_file_under_the_name_of_ours_is_left_alone_also_beside_a_manifest(
    log: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(5)
    await written(log, past)
    await export(log, tmp_path)
    (held,) = Folder(tmp_path).manifest.files
    foreign = tmp_path / "9999-12-31.jsonl.gz"
    foreign.write_bytes(b"somebody's")
    with writing(tmp_path) as folder:
        folder.add(Stored(held.last + 1, "flotilla.log.e.x", b"{}", 253_402_214_400.0))
        with pytest.raises(Failure, match="which its manifest"):
            folder.commit()
    assert foreign.read_bytes() == b"somebody's"
    assert Folder(tmp_path).manifest.files == (held,)


async def test_a_new_day_that_was_cut_off_is_begun_anew(
    log: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(log, begun().pass_by(5))

    def torn(path: Path, _size: int, content: bytes) -> None:
        path.write_bytes(content[:-9])
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "_append", torn)
        with pytest.raises(OSError, match="killed"):
            await export(log, tmp_path)
    assert Folder(tmp_path).manifest.events == 0
    await export(log, tmp_path)
    Folder(tmp_path).check(1)
    assert Folder(tmp_path).manifest.events == 7


async def test_a_full_disk_is_said_and_no_part_is_taken_for_the_whole(
    nats: NatsServer, log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(50)
    await written(log, past)
    command = [sys.executable, "-m", "services.journal", "export", "--nats-url", nats.url]
    with a_small_disk(tmp_path / "disk", 1) as disk:
        folder = disk.path / "journal"
        await export(log, folder)
        await written(log, past.pass_by(400))
        disk.fill()
        program = await asyncio.create_subprocess_exec(*command, str(folder), stdout=-1, stderr=-1)
        out, err = await program.communicate()
        assert (program.returncode, out.decode()) == (Exit.REFUSED, "0 events added\n")
        error, why, step = err.decode().splitlines()
        assert error.startswith(f"error: {folder} has no room left: ")
        assert error.endswith(" [disk_full]")
        assert "what was exported until then is whole" in why
        assert step.endswith(f"flotilla journal export {folder} --nats-url {nats.url}")
        assert not list(folder.glob(".*.tmp"))
        Folder(folder).check(1)
        assert Folder(folder).manifest.events == 52
        disk.make_room()
        await export(log, folder)
        await load(elsewhere, folder)
        assert dump(await lived(elsewhere)) == past.dump()


def rewritten(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """As one member, and the manifest says so: sizes and hash are right."""
    content = b"".join(change(gzip.decompress(file.read_bytes()).splitlines(keepends=True)))
    file.write_bytes(gzip.compress(content))
    manifest = json.loads((file.parent / MANIFEST).read_bytes())
    (held,) = manifest["files"]
    held |= {"size": file.stat().st_size, "sha256": hashlib.sha256(content).hexdigest()}
    (file.parent / MANIFEST).write_text(json.dumps(manifest))


def swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:5], lines[6], lines[5], *lines[7:]]


def renumbered(lines: list[bytes]) -> list[bytes]:
    return [*lines[:5], lines[5].replace(b'"seq":6', b'"seq":7'), *lines[6:]]


def begun_elsewhere(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"seq":1', b'"seq":2'), *lines[1:]]


def shortened(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


@pytest.mark.parametrize("change", [swapped, renumbered, begun_elsewhere, shortened])
async def test_a_line_in_another_s_place_is_refused_before_anything_is_written(
    log: Connection,
    elsewhere: Connection,
    tmp_path: Path,
    change: Callable[[list[bytes]], list[bytes]],
) -> None:
    await written(log, begun().pass_by(30))
    await export(log, tmp_path)
    file = tmp_path / Folder(tmp_path).manifest.files[0].name
    rewritten(file, change)
    with pytest.raises(Torn):
        await load(elsewhere, tmp_path)
    assert not await exists(elsewhere)


async def test_lines_that_were_changed_are_neither_imported_nor_appended_to(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(30)
    await written(log, past)
    await export(log, tmp_path)
    file = tmp_path / Folder(tmp_path).manifest.files[0].name
    file.write_bytes(
        gzip.compress(gzip.decompress(file.read_bytes()).replace(b"event-9", b"event-8"))
    )
    manifest = json.loads((tmp_path / MANIFEST).read_bytes())
    manifest["files"][0]["size"] = file.stat().st_size
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(Torn, match="does not hold what was exported"):
        await load(elsewhere, tmp_path)
    assert not await exists(elsewhere)
    await written(log, past.pass_by(3))
    with pytest.raises(Torn, match="does not hold what was exported"):
        await export(log, tmp_path)


async def test_the_sum_in_the_manifest_is_that_of_the_lines(
    log: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(30)
    for _ in range(3):
        await written(log, past.pass_by(7))
        await export(log, tmp_path)
        past.messages.clear()
    for held in Folder(tmp_path).manifest.files:
        content = gzip.decompress((tmp_path / held.name).read_bytes())
        assert held.sha256 == hashlib.sha256(content).hexdigest()


async def test_an_import_goes_on_only_with_its_own_journal(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    """First and last event are the same; one between them is not."""
    past = begun().pass_by(30)
    await written(log, past)
    await export(log, tmp_path)
    await create(elsewhere)
    other = [
        Stored(m.sequence, m.subject, m.payload.replace(b"event-9", b"event-0"))
        for m in past.messages
    ]
    await restore(elsewhere, other)
    with pytest.raises(Failure, match="9 is the first that differs"):
        await load(elsewhere, tmp_path)


async def test_a_folder_holds_one_log_and_what_goes_on_from_it(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    past = begun().pass_by(30)
    await written(log, past)
    await export(log, tmp_path / "journal")
    past.begin(NEXT_ID, parent=LOG_ID)
    past.claim()
    await written(log, past.pass_by(30))
    assert await export(log, tmp_path / "journal") == []
    await load(elsewhere, tmp_path / "journal")
    assert dump(await lived(elsewhere)) == past.dump()


async def test_another_log_is_not_appended(
    log: Connection, elsewhere: Connection, tmp_path: Path
) -> None:
    await written(log, begun())
    await export(log, tmp_path / "journal")
    await create(elsewhere)
    other = Past()
    other.begin(NEXT_ID)
    await written(elsewhere, other.pass_by(30))
    with pytest.raises(Failure, match=f"holds log {LOG_ID}, this is log {NEXT_ID}"):
        await export(elsewhere, tmp_path / "journal")


async def test_a_log_that_was_shortened_is_not_appended(log: Connection, tmp_path: Path) -> None:
    past = begun().pass_by(30)
    await written(log, past)
    await export(log, tmp_path / "journal")
    manifest = tmp_path / "journal" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"last": 32', '"last": 320'))
    with pytest.raises(Failure, match="goes to 320, LOG ends at 32"):
        await export(log, tmp_path / "journal")
