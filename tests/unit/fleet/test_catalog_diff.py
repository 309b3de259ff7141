from msgspec import Raw

from schemas import subjects
from schemas.documents import CatalogRevision
from schemas.history import EntryChange, FieldChange
from schemas.ids import EventId
from services.fleet.catalog import Catalog, from_yaml
from services.fleet.state import Held
from services.fleet.telling.catalog_diff import Sections, difference, revision_rows, sections
from services.fleet.telling.happened import Happened, happened
from tests.builders import AT, a_pointer, an_event

ONE = """
engines: {vllm: {version: "0.32"}}
models:
  big: {engine: vllm, source: hub/big, gpu: {class: h100, count: 2}, replicas: 3}
  old: {engine: llamacpp, source: x}
"""
TWO = """
engines: {vllm: {version: "0.33"}}
models:
  big: {engine: vllm, source: hub/big, gpu: {class: h100, count: 4}, args: {seed: 1}}
  new: {engine: llamacpp, source: x}
"""


def source(text: str) -> Raw:
    made = from_yaml(text)
    assert isinstance(made, Catalog), made
    return made.source()


def held(revision: int, text: str) -> Held[CatalogRevision]:
    document = CatalogRevision(revision=revision, hash=f"hash-{revision}", source=source(text))
    return Held(revision * 10, EventId(f"event-{revision}"), "catalog.stored", AT, document)


def swap(revision: int) -> Happened:
    return happened(revision * 10 + 1, subjects.CATALOG, an_event(a_pointer(revision)))


# spec: C7
def test_every_value_that_differs_is_told_with_its_path() -> None:
    assert difference(sections(source(ONE)), sections(source(TWO))) == (
        EntryChange(
            section="engines",
            name="vllm",
            change="changed",
            fields=(FieldChange(path="version", old='"0.32"', new='"0.33"'),),
        ),
        EntryChange(
            section="models",
            name="big",
            change="changed",
            fields=(
                FieldChange(path="args", new='{"seed":"1"}'),
                FieldChange(path="gpu.count", old="2", new="4"),
                FieldChange(path="replicas", old="3"),
            ),
        ),
        EntryChange(section="models", name="new", change="added"),
        EntryChange(section="models", name="old", change="removed"),
    )


def test_catalogs_that_mean_the_same_do_not_differ() -> None:
    again = "# a comment" + ONE.replace("replicas: 3", 'replicas: "3"')
    assert difference(sections(source(ONE)), sections(source(again))) == ()


def test_a_source_that_cannot_be_read_has_no_entries() -> None:
    assert sections(Raw(b"[1]")) == Sections()


# spec: C7
def test_each_kept_revision_is_told_against_the_one_before_it() -> None:
    newest, oldest = revision_rows([held(1, ONE), held(2, TWO)], 2, [swap(2)])
    assert (newest.revision, newest.current, newest.author, newest.models) == (2, True, "tests", 2)
    assert (newest.added, newest.removed, newest.changed) == (("new",), ("old",), ("big",))
    assert (newest.seq, oldest.seq) == (21, 10)
    assert (oldest.author, oldest.added) == ("", ("big", "old"))
