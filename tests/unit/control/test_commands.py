import shlex

import pytest

from schemas import codec, subjects
from schemas.api import ApplyCatalog
from schemas.documents import CatalogPointer, CatalogRevision, CommandRecord, Gone
from schemas.frames import Accepted, Refusal
from schemas.history import RollbackCatalog
from schemas.ids import EventId, ModelName
from services.control.answering.orders import ORDERS
from services.control.commanding.commands import Actor, plan_apply, plan_rollback
from services.control.commanding.moment import Moment, Planned
from services.control.deciding.current import CurrentCatalog, source_ahead
from services.control.deciding.drafts import Draft
from services.fleet import catalog
from services.fleet.catalog import from_json
from tests.builders import Script, a_replica, an_event

ACTOR = Actor("ann", "127.0.0.1", EventId("command-1"))
ONE = "models:\n  one: {engine: llamacpp, source: /models/one.gguf}\n"
MORE = "  three: {engine: llamacpp, source: /models/three.gguf}\n"
TWO = ONE + "  two: {engine: llamacpp, source: /models/two.gguf}\n"


class Log:
    """A log in memory that commands are carried out on."""

    def __init__(self) -> None:
        self.script = Script()
        self.catalog = CurrentCatalog()
        self.number = 0

    def plan(self, request: ApplyCatalog) -> Planned:
        self.number += 1
        state = self.script.state
        actor = Actor(ACTOR.name, ACTOR.source, EventId(f"command-{self.number}"))
        return plan_apply(request, actor)(Moment(state, self.catalog.read(state)))

    def apply(self, source: str, **options: object) -> Accepted | Refusal:
        planned = self.plan(ApplyCatalog(source=source, **options))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        for draft in planned.drafts:
            self.script.put(draft.subject, draft.document, kind=draft.type)
        answer = planned.answer(self.script.state.sequence)
        assert isinstance(answer, Accepted | Refusal)
        return answer


def record(draft: Draft) -> CommandRecord:
    assert isinstance(draft.document, CommandRecord)
    return draft.document


# spec: C2 L1
def test_an_apply_is_one_batch_of_revision_pointer_and_record() -> None:
    planned = Log().plan(ApplyCatalog(source=ONE, reason="first"))
    assert [draft.subject for draft in planned.drafts] == [
        subjects.catalog_revision(1),
        subjects.CATALOG,
        subjects.command("apply"),
    ]
    stored, pointed = planned.drafts[0].document, planned.drafts[1].document
    assert isinstance(stored, CatalogRevision)
    assert isinstance(pointed, CatalogPointer)
    assert (stored.revision, stored.hash) == (pointed.revision, pointed.hash)
    assert (pointed.author, pointed.reason) == ("ann", "first")
    assert {draft.corr for draft in planned.drafts} == {"command-1"}
    told = planned.drafts[2]
    assert (record(told).outcome, record(told).actor, record(told).source) == (
        "accepted",
        "ann",
        "127.0.0.1",
    )


# spec: C2
def test_an_applied_catalog_is_the_current_one() -> None:
    log = Log()
    answer = log.apply(ONE)
    assert isinstance(answer, Accepted)
    assert (answer.revision, answer.changed) == (1, True)
    assert list(log.catalog.read(log.script.state).catalog.models) == ["one"]


# spec: C7
def test_the_same_content_changes_nothing() -> None:
    log = Log()
    log.apply(ONE)
    answer = log.apply("# a comment\n" + ONE)
    assert isinstance(answer, Accepted)
    assert (answer.revision, answer.changed) == (1, False)
    assert log.plan(ApplyCatalog(source=ONE)).drafts == ()


# spec: C1
def test_a_bad_catalog_is_refused_with_every_fault_and_recorded() -> None:
    log = Log()
    planned = log.plan(ApplyCatalog(source="models:\n  a: {engin: x}\n  b: {}\n", file="f.yaml"))
    answer = planned.answer(1)
    assert isinstance(answer, Refusal)
    assert answer.code == "bad_catalog"
    assert len(answer.faults) > 1
    assert {fault.file for fault in answer.faults} == {"f.yaml"}
    (only,) = planned.drafts
    assert record(only).outcome == "refused"


# spec: C9
def test_a_model_that_would_vanish_must_be_named() -> None:
    log = Log()
    log.apply(TWO)
    answer = log.apply(ONE, file="c.yaml")
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.next) == (
        "would_remove",
        "flotilla catalog apply c.yaml --prune two",
    )
    assert isinstance(log.apply(ONE, prune=(ModelName("two"),)), Accepted)
    log.apply(TWO)
    assert isinstance(log.apply(ONE, prune_all=True), Accepted)


# spec: C9, O1
def test_what_to_type_next_runs_no_command_that_a_name_holds() -> None:
    log = Log()
    log.apply(ONE.replace("one:", "'x;id>p':"))
    answer = log.apply(ONE, file="my cat.yaml")
    assert isinstance(answer, Refusal)
    assert answer.next == "flotilla catalog apply 'my cat.yaml' --prune 'x;id>p'"


# spec: C9, O1
def test_what_to_type_next_is_the_whole_command() -> None:
    log = Log()
    log.apply(TWO + "  three: {engine: llamacpp, source: /models/three.gguf}\n")
    said = {"prune": (ModelName("two"),), "if_revision": 1, "reason": "no longer 'asked' for"}
    answer = log.apply(ONE, file="<stdin>", **said)
    assert isinstance(answer, Refusal)
    assert shlex.split(answer.next) == [
        *("flotilla", "catalog", "apply", "-", "--prune", "three", "--prune", "two"),
        *("--if-revision", "r1", "-m", "no longer 'asked' for"),
    ]
    log.apply(ONE, prune_all=True)
    log.apply(TWO)
    back = RollbackCatalog(revision=2, reason="oops")
    planned = plan_rollback(
        Moment(log.script.state, log.catalog.read(log.script.state)), back, ACTOR
    )
    refused = planned.answer(1)
    assert isinstance(refused, Refusal)
    assert refused.next == "flotilla catalog rollback r2 --prune two -m oops"


# spec: C9, O1
def test_a_prune_of_what_is_no_model_is_refused_with_the_nearest_name() -> None:
    log = Log()
    log.apply(TWO)
    answer = log.apply(ONE, file="c.yaml", prune=(ModelName("twos"),))
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.next) == (
        "no_such_model",
        "flotilla catalog apply c.yaml --prune two",
    )
    assert "twos" in answer.message
    assert answer.why == "did you mean two?"
    answer = log.apply(ONE, prune=(ModelName("zzz"),), prune_all=True)
    assert isinstance(answer, Refusal)
    assert answer.code == "no_such_model"


# spec: C9
def test_a_model_that_has_just_left_may_still_be_named() -> None:
    log = Log()
    log.apply(TWO)
    log.apply(ONE, prune=(ModelName("two"),))
    log.script.put(subjects.placement(ModelName("two")), Gone(id="two"))
    answer = log.apply(ONE.replace("one.gguf", "1.gguf"), prune=(ModelName("two"),))
    assert isinstance(answer, Accepted)


# spec: C7, C9
def test_an_apply_that_was_taken_may_be_sent_again_with_the_models_that_are_gone() -> None:
    log = Log()
    log.apply(TWO)
    log.apply(ONE, prune=(ModelName("two"),))
    again = log.apply(ONE, prune=(ModelName("two"),))
    assert isinstance(again, Accepted)
    assert not again.changed


# spec: C7
def test_an_apply_against_a_catalog_that_changed_meanwhile_is_refused() -> None:
    log = Log()
    log.apply(ONE)
    answer = log.apply(TWO, if_revision=0)
    assert isinstance(answer, Refusal)
    assert answer.code == "revision_changed"
    assert isinstance(log.apply(TWO, if_revision=1), Accepted)


# spec: C1
def test_a_catalog_that_this_version_refuses_is_replaced_under_a_new_number() -> None:
    log = Log()
    log.script.put(
        subjects.catalog_revision(4),
        CatalogRevision(revision=4, hash="h", source=codec.raw({"x": 1})),
    )
    log.script.put(subjects.CATALOG, CatalogPointer(revision=4, hash="h", author="newer"))
    log.script.add(a_replica("two"))
    current = log.catalog.read(log.script.state)
    assert "revision 4" in current.refused
    refused = log.apply(ONE)
    assert isinstance(refused, Refusal)
    assert refused.code == "would_remove"
    accepted = log.apply(ONE, prune_all=True)
    assert isinstance(accepted, Accepted)
    assert accepted.revision == 5


def test_a_pointer_without_its_revision_is_refused() -> None:
    log = Log()
    log.apply(ONE)
    log.catalog.read(log.script.state)
    log.script.put(subjects.CATALOG, CatalogPointer(revision=9, hash="h", author="x"))
    current = log.catalog.read(log.script.state)
    assert current.refused == "revision 9 is not in the log"
    assert list(current.catalog.models) == ["one"]


def test_a_revision_of_another_hash_is_not_the_one_that_was_swapped_in() -> None:
    log = Log()
    log.apply(ONE)
    log.script.put(subjects.CATALOG, CatalogPointer(revision=1, hash="h", author="x"))
    assert log.catalog.read(log.script.state).refused == "revision 1 is not in the log"


# spec: L5
def test_nothing_is_applied_while_the_log_holds_what_only_a_newer_version_understands() -> None:
    log = Log()
    log.script.put("flotilla.log.s.future.thing", {"x": 1})
    answer = log.apply(ONE)
    assert isinstance(answer, Refusal)
    assert answer.code == "halted"


def test_a_record_fits_the_log_however_much_a_command_names() -> None:
    log = Log()
    names = [f"model-{number}-{'x' * 30}" for number in range(200)]
    models = "".join(f"  {n}: {{engine: llamacpp, source: /m/{n}.gguf}}\n" for n in names)
    log.apply(f"models:\n{models}")
    [refused] = log.plan(ApplyCatalog(source=ONE)).drafts
    assert 1000 < len(record(refused).detail) < 3000


# spec: C2
def test_a_catalog_is_read_before_the_turn_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes a second: neither a plan nor a fold may wait for that."""
    log = Log()
    log.apply(ONE)
    log.apply(TWO)
    state = log.script.state
    for number in range(catalog.REMEMBERED):  # Whatever was read before is not remembered.
        from_json(b"%d" % number)
    request = codec.encode(RollbackCatalog(revision=1, prune_all=True))
    rollback = ORDERS["rollback"](request, ACTOR, state)
    read, three = plan_apply(ApplyCatalog(source=TWO + MORE), ACTOR), Script().state
    log.catalog.read(state)

    def fails(*_: object) -> None:
        raise AssertionError("a catalog is read in the turn")

    monkeypatch.setattr(catalog, "read_json", fails)
    moment = Moment(state, log.catalog.read(state))
    for plan in (rollback, read):
        drafts = plan(moment).drafts
        messages = [(draft.subject, an_event(draft.document, kind=draft.type)) for draft in drafts]
        source = source_ahead(three, messages)
        assert source is not None
        for sequence, (subject, payload) in enumerate(messages, three.sequence + 1):
            three.apply(sequence, subject, payload)
        current = CurrentCatalog().read(three)
        assert current.catalog is from_json(source)
    assert current.catalog.models.keys() == {"one", "two", "three"}


def test_which_catalog_is_in_force_is_known_before_it_is_folded() -> None:
    log = Log()
    log.apply(ONE)
    log.apply(TWO)
    state = log.script.state
    first, second = (state.revisions[(str(n),)].document for n in (1, 2))
    stored = (subjects.catalog_revision(1), an_event(first))
    pointed = (subjects.CATALOG, an_event(CatalogPointer(revision=1, hash=first.hash, author="a")))
    for messages, source in (
        ([], None),
        ([(subjects.command("apply"), b"{}")], None),
        ([pointed], first.source),
        ([stored, pointed], first.source),
        ([stored], second.source),
        ([(subjects.CATALOG, b"rubbish")], second.source),
    ):
        found = source_ahead(state, messages)
        assert (None if found is None else bytes(found)) == (source and bytes(source))
    assert source_ahead(Script().state, [pointed]) is None
