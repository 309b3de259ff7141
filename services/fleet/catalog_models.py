"""The rules of one model of a catalog, and of its profile."""

import re
from collections.abc import Mapping

from schemas.catalog import CpuNeed, EngineEnvironment, GpuNeed, Model, Profile
from schemas.documents import Task
from schemas.ids import EngineName, ModelName
from services.fleet.catalog_args import read_args, read_env
from services.fleet.catalog_engines import ENGINES
from services.fleet.catalog_section import Section, as_scalar
from services.fleet.catalog_source import profile_hash
from services.fleet.catalog_tree import Entries, Faults, Scalar
from services.fleet.nearest import nearest

MOST_NODES = 400
"""A gang is placed in one batch of at most 500 events: replica, assignments, endpoints."""
_MOST_CARDS = 64
_MOST_REPLICAS = 100_000
_MOST_CORES = 4096.0
_LONGEST_TEXT = 4096
_TASKS: dict[str, Task] = {"generate": "generate", "embed": "embed"}
_CLASS = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

Engines = Mapping[EngineName, EngineEnvironment]


def read_model(key: Scalar, node: Entries, engines: Engines, faults: Faults) -> Model:
    """One entry as a model; worth nothing once there are faults."""
    section = Section(node, "a model", faults)
    profile = _profile(key, section, engines)
    replicas = section.count("replicas", 1, 0, _MOST_REPLICAS)
    load_stall = section.duration("load_stall", 600.0)
    if load_stall == 0:
        at = section.scalar("load_stall") or key
        faults.add(at, "`load_stall: 0` would end every load at once", "`off` is no limit")
    return Model(
        name=ModelName(key.text),
        profile=profile,
        profile_hash=profile_hash(profile),
        replicas=replicas,
        min_ready=_min_ready(section, replicas),
        aliases=_aliases(section),
        hidden=section.word("hidden", default=False),
        patience_seconds=section.duration("patience", 60.0),
        drain_grace_seconds=section.duration("drain_grace", 600.0),
        load_stall_seconds=load_stall,
    )


def _aliases(section: Section) -> tuple[ModelName, ...]:
    """Whether they are good names is judged over all models (`catalog_names`)."""
    nodes = (as_scalar(item, "an alias", section.faults) for item in section.items("aliases"))
    return tuple(ModelName(node.text) for node in nodes if node is not None)


def _min_ready(section: Section, replicas: int) -> int | None:
    node = section.scalar("min_ready")
    if node is None:
        return None
    least = section.count("min_ready", 0, 0, _MOST_REPLICAS)
    if (
        0 < replicas < least
    ):  # With 0 replicas the model is stopped, and the bar waits for its return.
        message = f"`min_ready` is {least}, more than the {replicas} of `replicas`"
        section.faults.add(node, message, f"write {replicas} or less, or leave it out")
    return least


def _profile(key: Scalar, section: Section, engines: Engines) -> Profile:
    environment = _environment(key, section, engines)
    drives = ENGINES[environment.kind] if environment else None
    gpu, cpu, nodes = _gpu(section), _cpu(section), section.count("nodes", 1, 1, MOST_NODES)
    _check_need(key, section, environment, nodes)
    return Profile(
        engine=environment or EngineEnvironment(name=EngineName(""), kind="llamacpp"),
        source=_source(key, section),
        task=_task(section),
        gpu=gpu,
        cpu=(cpu or CpuNeed()) if gpu is None else None,
        nodes=nodes,
        args=read_args(section, drives),
        env=read_env(section, drives),
    )


def _environment(key: Scalar, section: Section, engines: Engines) -> EngineEnvironment | None:
    node = section.scalar("engine")
    if node is None:
        if "engine" not in section.node.entries:
            section.faults.add(
                key, f"`{key.text}` names no `engine`", f"one of {', '.join(engines)}"
            )
        return None
    found = engines.get(EngineName(node.text))
    if found is None:
        near = nearest(node.text, tuple(engines))
        hint = f"write `{near}`" if near else f"one of {', '.join(engines)}"
        section.faults.add(node, f"no engine is called `{node.text}`", hint)
    return found


def _source(key: Scalar, section: Section) -> str:
    node = section.scalar("source")
    if node is None:
        if "source" not in section.node.entries:
            hint = "write `source: ` and a path on the node or a hub id"
            section.faults.add(key, f"`{key.text}` names no `source`", hint)
        return ""
    if not node.text.strip() or len(node.text) > _LONGEST_TEXT or node.text.startswith("-"):
        message = f"`source` must be a path or hub id of 1 to {_LONGEST_TEXT} characters"
        section.faults.add(node, message, "it cannot begin with `-`")
    return node.text


def _task(section: Section) -> Task:
    node = section.scalar("task")
    if node is None:
        return "generate"
    if node.text not in _TASKS:
        section.faults.add(node, f"`task` is `{node.text}`", f"one of {', '.join(_TASKS)}")
    return _TASKS.get(node.text, "generate")


def _gpu(section: Section) -> GpuNeed | None:
    node = section.get("gpu")
    if node is None:
        return None
    if not isinstance(node, Entries):
        word = node.text if isinstance(node, Scalar) else "l4"
        section.faults.add(node, "`gpu` is a mapping", f"write `gpu: {{class: {word}, count: 1}}`")
        return GpuNeed(gpu_class="", count=1)
    gpu = Section(node, "`gpu`", section.faults)
    named = gpu.scalar("class")
    if named is None and "class" not in node.entries:
        hint = "write `gpu: {class: …, count: N}`; without any card leave `gpu` out"
        gpu.faults.add(node, "`gpu` has no `class`", hint)
    if named is not None and not _CLASS.fullmatch(named.text):
        lower = named.text.lower().replace(" ", "-")
        hint = f"write `{lower}`" if _CLASS.fullmatch(lower) else "write for example `h100-80gb`"
        gpu.faults.add(named, f"`{named.text}` cannot name a GPU class", hint)
    counted = gpu.scalar("count")
    if counted and counted.text == "0":
        hint = "for a model without cards leave `gpu` out; to stop it write `replicas: 0`"
        gpu.faults.add(counted, "a GPU class with `count: 0`", hint)
        return None
    count = gpu.count("count", 1, 1, _MOST_CARDS)
    return GpuNeed(
        gpu_class=named.text if named else "", count=count, memory_bytes=gpu.size("memory")
    )


def _cpu(section: Section) -> CpuNeed | None:
    node = section.entries("cpu")
    if node is None:
        return None
    cpu = Section(node, "`cpu`", section.faults)
    cores = cpu.decimal("cores", 1.0, _MOST_CORES)
    return CpuNeed(cores=cores, memory_bytes=cpu.size("memory") or 0)


def _check_need(
    key: Scalar, section: Section, environment: EngineEnvironment | None, nodes: int
) -> None:
    """What is asked of nodes, against what the engine can drive."""
    given, faults = section.node.entries, section.faults
    if "gpu" in given and "cpu" in given:
        hint = "keep `gpu`; a replica with cards takes no reserved cores"
        faults.add(given["cpu"].key, "`cpu` beside `gpu`", hint)
    if environment is None:
        return
    kind, drives = environment.kind, ENGINES[environment.kind]
    if drives.needs_gpu and "gpu" not in given:
        hint = "write `gpu: {class: …, count: N}`; only llamacpp serves without a card"
        faults.add(key, f"`{key.text}` has no `gpu`, and {kind} needs cards", hint)
    if nodes > 1 and not drives.gangs:
        hint = "cards of one node are `gpu: {count: N}`; more copies are `replicas: N`"
        faults.add(given["nodes"].key, f"{kind} serves from one node, not from {nodes}", hint)
    elif nodes > 1 and "gpu" not in given:
        hint = "write `gpu: {class: …, count: N}`, N being all cards of each node"
        faults.add(given["nodes"].key, "a replica over several nodes takes whole GPU nodes", hint)
