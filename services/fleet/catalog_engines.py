"""What each engine kind can drive, as data: the catalog refuses the rest.

The agent's adapters build the command lines; here stands only what a catalog may ask of them.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from schemas.documents import EngineKind
from services.fleet import catalog_llamacpp
from services.fleet.units import Wrong

_SOURCE = "`source` says which weights"
_SERVED = "the model's name in the catalog is the served name; more names go into `aliases`"
_DOOR = "the agent chooses where the engine listens"
_KEYS = "the engine listens for routers only, and keys are the router's"
_CARDS = "follows from `gpu.count` and `nodes`"
_GANG = "the agent sets it from `nodes`"
_METRICS = "the agent always sets it, for its own probes"
_TASK = "follows from `task`"
_CARDS_GIVEN = "control chooses the cards"
_ONE_NODE = "llama.cpp serves from one node: leave it out; cards of one node are `gpu: {count: N}`"
_STOP = "the agent sets it, so that a drain can end"
_FILE = "flags stand in `args`, where they are checked"
_FOREIGN_CODE = "it would run code that comes with the weights, or a plugin, on the node"
_PATH = "it names a file or folder of the node, which a catalog has no say in"
_ELSEWHERE = "more weights, code or files may be named in it; only `source` names weights"
_CODE_AND_FILES = (
    dict.fromkeys(
        (
            *("trust-remote-code", "load-format", "model-loader-extra-config", "*plugin*"),
            *("*-cls", "*-class", "logits-processor*", "middleware", "custom-weight-loader"),
        ),
        _FOREIGN_CODE,
    )
    | dict.fromkeys(
        (
            *("chat-template", "completion-template", "tokenizer", "generation-config"),
            *("*-path", "*-paths", "*-file", "*-files", "*-dir", "*-folder", "*-directory"),
        ),
        _PATH,
    )
    | dict.fromkeys(
        (
            *("*lora*", "hf-overrides", "json-model-override-args", "speculative-*"),
            *("kv-transfer-config", "kv-events-config", "ec-transfer-config", "additional-config"),
            *("compilation-config", "forward-hooks", "hicache-storage-*"),
        ),
        _ELSEWHERE,
    )
)
"""Of engines that are driven by a deny-list: whatever may load code or read files of the node."""


class Drives(Struct, frozen=True, kw_only=True):
    """One engine kind."""

    needs_gpu: bool
    gangs: bool
    """Can form one replica over several nodes."""
    reserved: Mapping[str, str]
    """Flags that `args` may not name: name or pattern such as `prefix-*`, and why."""
    args: frozenset[str] | None = None
    """The flags that `args` may name; None: whatever is not reserved."""
    check: Callable[[str, str], Wrong | None] | None = None
    """Why a flag of `args` does not take a value."""
    long_names: Mapping[str, str] = {}
    """Short flags by what to write instead: `args` holds long names, without dashes."""
    reserved_env: Mapping[str, str] = {}
    """Variables that `env` may not set: name or `PREFIX*`, and why."""


def _each(why: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, why)


_LLAMACPP_RESERVED = (
    _each(_SOURCE, "model", "model-url", "docker-repo", "hf-*", "models-*")
    | _each(_SERVED, "alias")
    | _each(_DOOR, "host", "port", "reuse-port", "path", "api-prefix", "ssl-*")
    | _each("the engine serves routers, not browsers", "webui*", "no-webui", "ui", "no-ui")
    | _each(_KEYS, "api-key", "api-key-file")
    | _each(_METRICS, "metrics", "slots", "no-slots", "props")
    | _each(_TASK, "embedding", "embeddings", "rerank", "reranking")
    | _each(_CARDS_GIVEN, "device", "main-gpu")
    | _each(_ONE_NODE, "rpc", "tensor-parallel*", "pipeline-parallel*", "nnodes", "node-rank")
)


def reserved(name: str, table: Mapping[str, str]) -> str | None:
    """Why `name` is not for the catalog to set; None: it may."""
    return next((why for pattern, why in table.items() if fnmatchcase(name, pattern)), None)


ENGINES: dict[EngineKind, Drives] = {
    "llamacpp": Drives(
        needs_gpu=False,
        gangs=False,
        reserved=_LLAMACPP_RESERVED,
        args=frozenset(
            name for name in catalog_llamacpp.BY_NAME if not reserved(name, _LLAMACPP_RESERVED)
        ),
        check=catalog_llamacpp.check,
        long_names={flag.short: flag.name for flag in catalog_llamacpp.FLAGS if flag.short},
        reserved_env=_each("write it in `args`", "LLAMA_*"),
    ),
    "vllm": Drives(
        needs_gpu=True,
        gangs=True,
        reserved=_each(_SOURCE, "model")
        | _each(_SERVED, "served-model-name")
        | _each(_DOOR, "host", "port", "uds", "grpc", "root-path", "ssl-*", "api-server-count")
        | _each(_KEYS, "api-key")
        | _each(_CARDS, "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-*")
        | _each(_GANG, "nnodes", "node-rank", "master-addr", "master-port", "headless")
        | _each(_GANG, "distributed-executor-backend")
        | _each(_CARDS_GIVEN, "device-ids")
        | _each(_TASK, "task", "runner")
        | _each(_STOP, "shutdown-timeout")
        | _each(_FILE, "config")
        | _CODE_AND_FILES,
        long_names={"tp": "gpu.count", "pp": "nodes", "dp": "replicas"},
        reserved_env=_each(_KEYS, "VLLM_API_KEY")
        | _each(_DOOR, "VLLM_HOST_IP", "VLLM_PORT")
        | _each(_FOREIGN_CODE, "VLLM_PLUGINS", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    ),
    "sglang": Drives(
        needs_gpu=True,
        gangs=True,
        reserved=_each(_SOURCE, "model", "model-path")
        | _each(_SERVED, "served-model-name")
        | _each(_DOOR, "host", "port", "nccl-port")
        | _each(_KEYS, "api-key", "admin-api-key")
        | _each(_CARDS, "tp", "tp-size", "tensor-parallel-size", "pp", "pp-size", "dp", "dp-size")
        | _each(_CARDS, "pipeline-parallel-size", "data-parallel-size")
        | _each(_GANG, "nnodes", "node-rank", "dist-init-addr")
        | _each(_CARDS_GIVEN, "base-gpu-id", "gpu-id-step")
        | _each(_METRICS, "enable-metrics")
        | _each(_TASK, "is-embedding")
        | _each(_FILE, "config")
        | _CODE_AND_FILES,
    ),
}

RESERVED_ENV = (
    _each(_CARDS_GIVEN, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")
    | _each("it would change which program runs; set it in the agent's engine command", "LD_*")
    | _each("it would change which program runs; set it in the agent's engine command", "PYTHON*")
    | _each("it is the agent's own", "FLOTILLA_*")
)
"""For every kind."""
