"""The rules of a whole catalog: its sections, its engines, the names of its models."""

import re

from schemas.catalog import EngineEnvironment, Model
from schemas.documents import EngineKind
from schemas.ids import EngineName
from services.fleet.catalog_engines import ENGINES
from services.fleet.catalog_metrics import read_metrics
from services.fleet.catalog_models import Engines, read_model
from services.fleet.catalog_names import check_names
from services.fleet.catalog_section import Section
from services.fleet.catalog_tree import Entries, Faults, Items, Node, Scalar
from services.fleet.nearest import nearest

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_KINDS: dict[str, EngineKind] = {kind: kind for kind in ENGINES}


def check(root: Node, faults: Faults) -> tuple[Engines, tuple[Model, ...]]:
    """Engines and models of a tree, in order of names. Worth nothing once there are faults."""
    if not isinstance(root, Entries):
        faults.add(root, "a catalog is a mapping", "begin with `models:`")
        return {}, ()
    top = Section(root, "a catalog", faults)
    if "models" not in root.entries:
        faults.add(root, "`models` is missing", "a catalog without models is `models: {}`")
    engines = _engines(top.entries("engines"), faults)
    entries = _model_entries(top)
    check_names(entries, faults)
    models = [read_model(key, node, engines, faults) for key, node in entries]
    return engines, tuple(sorted(models, key=lambda model: model.name))


def _engines(node: Entries | None, faults: Faults) -> Engines:
    """The declared environments, and one of its own name for each kind."""
    found = {EngineName(kind): _plain(kind) for kind in ENGINES}
    for name, (key, value) in node.entries.items() if node else ():
        if not _NAME.fullmatch(name):
            hint = "write small letters, digits, `.`, `_` and `-`; 64 at most"
            faults.add(key, f"`{name}` cannot name an engine", _write_kind(name) or hint)
        if isinstance(value, Entries):
            found[EngineName(name)] = _engine(key, Section(value, "an engine", faults))
        else:
            faults.add(key, f"`{name}` has no keys", f"write for example `{name}: {{kind: vllm}}`")
            found[EngineName(name)] = _plain("llamacpp")
    return dict(sorted(found.items()))


def _plain(kind: EngineKind) -> EngineEnvironment:
    return EngineEnvironment(name=EngineName(kind), kind=kind)


def _write_kind(text: str) -> str:
    near = nearest(text, tuple(ENGINES))
    return f"write `{near}`" if near else ""


def _engine(key: Scalar, section: Section) -> EngineEnvironment:
    kind_node = section.scalar("kind") or key
    kind = _KINDS.get(kind_node.text)
    if kind is None and kind_node is key:
        section.faults.add(
            key, f"`{key.text}` does not say its `kind`", f"one of {', '.join(ENGINES)}"
        )
    elif kind is None:
        hint = _write_kind(kind_node.text) or f"one of {', '.join(ENGINES)}"
        section.faults.add(kind_node, f"`{kind_node.text}` is no engine kind", hint)
    elif _KINDS.get(key.text) not in (None, kind):
        message = f"`{key.text}` is of kind `{kind}` and bears the name of another"
        section.faults.add(kind_node, message, "give the engine a name of its own")
    version = section.scalar("version")
    if version and (not version.text or " " in version.text):
        section.faults.add(version, "a version is one word", 'write for example `version: "0.32"`')
    metrics = section.entries("metrics")
    return EngineEnvironment(
        name=EngineName(key.text),
        kind=kind or "llamacpp",
        version=version.text if version else "",
        metrics=None if metrics is None else read_metrics(metrics, section.faults),
    )


def _model_entries(top: Section) -> list[tuple[Scalar, Entries]]:
    node, faults = top.get("models"), top.faults
    if isinstance(node, Items):
        hint = "write `tiny-chat: {engine: …, source: …}` instead of `- name: tiny-chat`"
        faults.add(node, "`models` is a list; each model stands under its own name", hint)
        return [pair for item in node.items if (pair := _from_list(item)) is not None]
    if isinstance(node, Scalar):
        faults.add(node, f"`models` is `{node.text}`", "a catalog without models is `models: {}`")
    entries = list[tuple[Scalar, Entries]]()
    for key, value in node.entries.values() if isinstance(node, Entries) else ():
        if isinstance(value, Entries):
            entries.append((key, value))
        else:
            hint = f"write `{key.text}: {{engine: …, source: …}}`"
            faults.add(key, f"`{key.text}` has no keys", hint)
    return entries


def _from_list(item: Node) -> tuple[Scalar, Entries] | None:
    """An entry of the list form that others use, so that its other faults are told as well."""
    if not isinstance(item, Entries) or "name" not in item.entries:
        return None
    name = item.entries["name"].value
    rest = {key: entry for key, entry in item.entries.items() if key != "name"}
    entries = Entries(path=item.path, line=item.line, column=item.column, entries=rest)
    return (name, entries) if isinstance(name, Scalar) else None
