"""Which adapter drives which engine kind."""

from schemas.documents import EngineKind
from services.agent.engines import llamacpp
from services.agent.engines.adapter import Adapter
from services.agent.engines.undriven import undriven

ADAPTERS: dict[EngineKind, Adapter] = {
    "llamacpp": llamacpp.ADAPTER,
    "vllm": undriven("vllm"),
    "sglang": undriven("sglang"),
}
