"""llama.cpp: llama-server, or our launcher of the xllamacpp wheel under the same flag names."""

import re

from schemas.documents import LastError, LaunchSpec
from services.agent.engines.adapter import (
    Adapter,
    Command,
    Environment,
    Failure,
    Step,
    refusal,
)
from services.fleet.catalog_llamacpp import BY_NAME

SLOTS = 4
SLOT_CONTEXT_TOKENS = 2048
SWITCHES = frozenset(name for name, flag in BY_NAME.items() if flag.kind == "switch")
"""Flags without a value: `on` sets them, `off` leaves them out. Of others these are values."""


def command(spec: LaunchSpec, environment: Environment) -> Command | LastError:
    """The same flags for both programs. Slots and context are always named: the engine's own defaults
    depend on the machine's memory, and two replicas of one model must be alike."""
    if not spec.source.startswith("/"):
        return refusal("model_not_found", f"{spec.source!r} is no path, and nothing is fetched yet")
    slots = spec.args.get("parallel", str(SLOTS))
    context = SLOT_CONTEXT_TOKENS * int(slots) if slots.isdecimal() else SLOT_CONTEXT_TOKENS
    flags = {
        "model": spec.source,
        "alias": spec.served_name,
        "host": spec.host,
        "port": str(spec.port),
        "parallel": slots,
        "ctx-size": str(context),
        "metrics": "",
        "no-webui": "",
    }
    if spec.cores:
        flags["threads"] = str(max(1, int(spec.cores)))
    if spec.task == "embed":
        flags["embeddings"] = ""
    argv = [*environment.command]
    for name, value in (flags | spec.args).items():
        argv += _flag(name, value)
    return Command(tuple(argv), _cards(spec))


def _flag(name: str, value: str) -> list[str]:
    if name in SWITCHES and value in ("on", "off", ""):
        return [] if value == "off" else [f"--{name}"]
    return [f"--{name}", value] if value else [f"--{name}"]


def _cards(spec: LaunchSpec) -> dict[str, str]:
    """By uuid, which survives re-enumeration; empty hides every card."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(spec.gpus)}


def _failure(pattern: str, name: str, *, permanent: bool = False, hint: str = "") -> Failure:
    return Failure(pattern=re.compile(pattern), name=name, permanent=permanent, hint=hint)


ADAPTER = Adapter(
    kind="llamacpp",
    command=command,
    health={200: "ready", 503: "loading", 500: "dead"},
    steps=(
        Step(re.compile(r"load_model: loading model|init: loading model"), "reading the model"),
        Step(re.compile(r"warming up"), "warming up"),
        Step(re.compile(r"initializing, n_slots|init: initializing slots"), "preparing slots"),
        Step(re.compile(r"model loaded"), "loaded"),
    ),
    failures=(
        _failure(r"couldn't bind HTTP server socket", "port_in_use"),
        _failure(
            r"error: (invalid argument|unknown argument|argument has no value)|^error while handling",
            "bad_argument",
            permanent=True,
            hint="see `args` of the model",
        ),
        _failure(r"unknown model architecture", "unsupported_model", permanent=True),
        _failure(r"failed to open GGUF file .*No such file", "model_not_found", permanent=True),
        _failure(r"failed to open GGUF file", "model_unreadable", permanent=True),
        _failure(
            r"invalid magic|not within the file bounds|corrupted or incomplete|failed to read",
            "model_corrupt",
            permanent=True,
        ),
        _failure(
            r"cudaMalloc failed|CUDA error.*out of memory|allocating .* on device",
            "out_of_gpu_memory",
            hint="a smaller `ctx-size` or `parallel` needs less",
        ),
        _failure(
            r"insufficient memory|failed to allocate (buffer|CPU|compute)",
            "out_of_host_memory",
            hint="a smaller `ctx-size` or `parallel` needs less",
        ),
        _failure(r"CUDA error|ggml_cuda", "gpu_error"),
        _failure(r"GGML_ASSERT", "engine_dead"),
        _failure(r"exiting due to|fatal: ", "engine_dead"),
    ),
    stop_grace_seconds=8.0,
)
