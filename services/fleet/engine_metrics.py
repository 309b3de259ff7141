"""One parser of the engines' metric pages: for the agent's scrapes and the router's static mode.

Knows metric names and the text format; must not know where a page came from. A figure that the page
does not show, or shows as something that is no number, is unknown (None), never 0.
"""

import math
import re
from collections.abc import Mapping

from schemas.beats import EngineLoad
from schemas.documents import EngineKind

FIGURES = ("running", "waiting", "kv_usage", "prompt_tokens", "generation_tokens")
"""What a mapping may name."""

MAPS: dict[EngineKind, dict[str, str]] = {
    "vllm": {
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "kv_usage": "vllm:kv_cache_usage_perc",
        "prompt_tokens": "vllm:prompt_tokens_total",
        "generation_tokens": "vllm:generation_tokens_total",
    },
    "llamacpp": {  # It shows no KV use.
        "running": "llamacpp:requests_processing",
        "waiting": "llamacpp:requests_deferred",
        "prompt_tokens": "llamacpp:prompt_tokens_total",
        "generation_tokens": "llamacpp:tokens_predicted_total",
    },
    "sglang": {
        "running": "sglang:num_running_reqs",
        "waiting": "sglang:num_queue_reqs",
        "kv_usage": "sglang:token_usage",
        "prompt_tokens": "sglang:prompt_tokens_total",
        "generation_tokens": "sglang:generation_tokens_total",
    },
}

_SAMPLE = re.compile(r'[^\s{]+(?:\{(?:[^"}]|"(?:\\.|[^"\\])*")*\})?\s+(\S+)')


def parse(page: str, kind: EngineKind, mapping: Mapping[str, str] | None) -> EngineLoad:
    """The figures of one engine from its metric page (Prometheus text).

    `mapping` None: the engine's own names; empty: vLLM's names; else a complete statement: what it
    leaves out stays unknown. Series of one name are added up; of `kv_usage` the fullest counts.
    """
    names = _names(kind, mapping)
    samples = _samples(page, frozenset(name for name in names.values() if name))
    return EngineLoad(
        running=_total(samples.get(names.get("running", ""))),
        waiting=_total(samples.get(names.get("waiting", ""))),
        kv_usage=_fullest(samples.get(names.get("kv_usage", ""))),
        prompt_tokens=_total(samples.get(names.get("prompt_tokens", ""))),
        generation_tokens=_total(samples.get(names.get("generation_tokens", ""))),
    )


def _names(kind: EngineKind, mapping: Mapping[str, str] | None) -> Mapping[str, str]:
    if mapping is None:
        return MAPS[kind]
    return mapping or MAPS["vllm"]


def _samples(page: str, wanted: frozenset[str]) -> dict[str, list[float]]:
    """Every value of the wanted names, in the order of the page."""
    found: dict[str, list[float]] = {}
    for line in page.splitlines():
        name = line.split("{", 1)[0].split(" ", 1)[0]
        if name in wanted and (sample := _SAMPLE.match(line)) is not None:
            found.setdefault(name, []).append(_number(sample[1]))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _total(values: list[float] | None) -> float | None:
    return _known(sum(values)) if values else None


def _fullest(values: list[float] | None) -> float | None:
    # max() would pass over a NaN, depending on its place.
    return _known(math.nan if any(map(math.isnan, values)) else max(values)) if values else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
