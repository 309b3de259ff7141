from schemas import codec, subjects
from schemas.documents import Genesis
from services.fleet.reading import Newer, Read, Unreadable, read
from tests.builders import LOG_ID, a_genesis, an_event


def test_reads_a_document_with_its_event() -> None:
    payload = an_event(a_genesis())
    event = codec.decode_event(payload)
    assert read(subjects.GENESIS, payload, Genesis) == Read(event, a_genesis())
    assert event.log == LOG_ID[:8]


def test_what_a_newer_version_wrote_is_not_read_however_well_it_fits() -> None:  # spec: L5
    found = read(subjects.GENESIS, an_event(a_genesis(), kind="log.begun", version=2), Genesis)
    assert isinstance(found, Newer)
    assert found == Newer("log.begun", 2, 1)
    assert "log.begun v2 is newer than v1" in found.reason


def test_neither_an_event_nor_another_document_is_readable() -> None:
    assert isinstance(read(subjects.GENESIS, b"?", Genesis), Unreadable)
    other = read(subjects.GENESIS, an_event({"log_id": 7}), Genesis)
    assert isinstance(other, Unreadable)
    assert "log_id" in other.reason
