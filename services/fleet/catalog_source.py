"""A catalog's canonical source: what makes the same catalog again, and what its hashes are taken of.

Defaults are left out, so that a later version with one more key finds the same hashes.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from schemas import codec
from schemas.catalog import CpuNeed, EngineEnvironment, GpuNeed, Model, Profile
from schemas.documents import SecretRef
from schemas.ids import EngineName
from services.fleet import units

Value: TypeAlias = "str | int | float | Sequence[Value] | Mapping[str, Value]"
Tree = dict[str, Value]
"""The keys of one entry, or of one mapping below it."""
Source = dict[str, dict[str, Tree]]
"""Sections, entries, keys: as a file holds them."""


def source_of(engines: Mapping[EngineName, EngineEnvironment], models: Iterable[Model]) -> Source:
    """What a file of this catalog would hold."""
    declared: dict[str, Tree] = {name: _engine(engine) for name, engine in engines.items()}
    named = {name: keys for name, keys in declared.items() if keys}
    source: Source = {"engines": named} if named else {}
    source["models"] = {model.name: _model(model) for model in models}
    return source


def profile_hash(profile: Profile) -> str:
    """Changes exactly when the profile means something else."""
    environment = {"name": profile.engine.name, "kind": profile.engine.kind}
    return digest(
        codec.encode(_profile(profile) | {"engine": environment | _engine(profile.engine)})
    )[:16]


def digest(content: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(content).hexdigest()


def _engine(engine: EngineEnvironment) -> Tree:
    keys: Tree = {} if engine.name == engine.kind else {"kind": engine.kind}
    if engine.version:
        keys["version"] = engine.version
    if engine.metrics is not None:
        keys["metrics"] = engine.metrics
    return keys


def _profile(profile: Profile) -> Tree:
    keys: Tree = {"engine": profile.engine.name, "source": profile.source}
    if profile.task != "generate":
        keys["task"] = profile.task
    if profile.gpu:
        keys["gpu"] = _gpu(profile.gpu)
    if profile.cpu and (cpu := _cpu(profile.cpu)):
        keys["cpu"] = cpu
    if profile.nodes != 1:
        keys["nodes"] = profile.nodes
    if profile.args:
        keys["args"] = profile.args
    if profile.env:
        keys["env"] = {name: _variable(value) for name, value in profile.env.items()}
    return keys


def _gpu(need: GpuNeed) -> Tree:
    keys: Tree = {"class": need.gpu_class, "count": need.count}
    if need.memory_bytes is not None:
        keys["memory"] = units.write_size(need.memory_bytes)
    return keys


def _cpu(need: CpuNeed) -> Tree:
    keys: Tree = {}
    if need.cores != 1.0:
        keys["cores"] = int(need.cores) if need.cores.is_integer() else need.cores
    if need.memory_bytes:
        keys["memory"] = units.write_size(need.memory_bytes)
    return keys


def _variable(value: str | SecretRef) -> str | Tree:
    return value if isinstance(value, str) else {"secret": value.secret}


def _model(model: Model) -> Tree:
    keys = _profile(model.profile)
    if model.replicas != 1:
        keys["replicas"] = model.replicas
    if model.min_ready is not None:
        keys["min_ready"] = model.min_ready
    if model.aliases:
        keys["aliases"] = list(model.aliases)
    if model.hidden:
        keys["hidden"] = True
    return keys | _durations(model)


def _durations(model: Model) -> Tree:
    keys: Tree = {}
    if model.patience_seconds != 60.0:
        keys["patience"] = units.write_duration(model.patience_seconds)
    if model.drain_grace_seconds != 600.0:
        keys["drain_grace"] = units.write_duration(model.drain_grace_seconds)
    if model.load_stall_seconds != 600.0:
        keys["load_stall"] = units.write_duration(model.load_stall_seconds)
    return keys
