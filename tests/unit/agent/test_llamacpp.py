import pytest
from msgspec.structs import replace

from schemas.documents import LastError, LaunchSpec
from schemas.ids import EngineName, GpuUuid, ModelName
from services.agent.engines.adapter import Command, Environment
from services.agent.engines.llamacpp import command
from services.agent.engines.table import ADAPTERS
from services.agent.llamacpp_server import parser
from services.fleet.catalog_engines import ENGINES
from services.fleet.catalog_llamacpp import BY_NAME, check

ENVIRONMENT = Environment(
    name=EngineName("llamacpp"), kind="llamacpp", command=("llama-server",), version="1"
)
SPEC = LaunchSpec(
    engine=EngineName("llamacpp"),
    kind="llamacpp",
    source="/models/tiny.gguf",
    served_name=ModelName("tiny"),
    host="127.0.0.1",
    port=17000,
)


def argv(spec: LaunchSpec) -> list[str]:
    made = command(spec, ENVIRONMENT)
    assert isinstance(made, Command)
    return list(made.argv)


def value(args: list[str], flag: str) -> str:
    return args[args.index(flag) + 1]


def test_names_model_door_slots_and_context() -> None:  # spec: A2
    args = argv(SPEC)
    assert args[0] == "llama-server"
    assert value(args, "--model") == "/models/tiny.gguf"
    assert value(args, "--alias") == "tiny"
    assert (value(args, "--host"), value(args, "--port")) == ("127.0.0.1", "17000")
    assert (value(args, "--parallel"), value(args, "--ctx-size")) == ("4", "8192")
    assert "--metrics" in args


def test_the_catalogs_args_win() -> None:  # spec: A2
    args = argv(replace(SPEC, args={"parallel": "2", "flash-attn": "on", "mlock": ""}))
    assert (value(args, "--parallel"), value(args, "--ctx-size")) == ("2", "4096")
    assert value(args, "--flash-attn") == "on"
    assert args[-1] == "--mlock"
    assert value(argv(replace(SPEC, args={"ctx-size": "512"})), "--ctx-size") == "512"


def test_switches_are_set_or_left_out() -> None:
    assert "--no-warmup" in argv(replace(SPEC, args={"no-warmup": "on"}))
    assert "--no-warmup" not in argv(replace(SPEC, args={"no-warmup": "off"}))


def test_takes_the_cores_it_was_given() -> None:
    assert value(argv(replace(SPEC, cores=2.0)), "--threads") == "2"
    assert value(argv(replace(SPEC, cores=0.5)), "--threads") == "1"
    assert "--threads" not in argv(SPEC)


def test_an_embedder_is_told_so() -> None:
    assert "--embeddings" in argv(replace(SPEC, task="embed"))


def test_sees_only_its_own_cards() -> None:  # spec: P5
    made = command(replace(SPEC, gpus=(GpuUuid("GPU-a"), GpuUuid("GPU-b"))), ENVIRONMENT)
    assert isinstance(made, Command)
    assert made.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    bare = command(SPEC, ENVIRONMENT)
    assert isinstance(bare, Command)
    assert bare.env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_source_that_is_no_path_is_refused_for_good() -> None:
    made = command(replace(SPEC, source="org/model"), ENVIRONMENT)
    assert isinstance(made, LastError)
    assert (made.failure, made.permanent) == ("model_not_found", True)


def test_our_launcher_understands_what_the_adapter_writes() -> None:
    spec = replace(SPEC, task="embed", cores=2.0, args={"no-warmup": "on", "batch-size": "64"})
    asked = parser().parse_args(argv(spec)[1:])
    assert (asked.model, asked.alias, asked.port) == ("/models/tiny.gguf", ["tiny"], 17000)
    assert (asked.parallel, asked.ctx_size, asked.threads) == (4, 8192, 2)
    assert asked.metrics
    assert asked.embeddings
    assert not asked.warmup


@pytest.mark.parametrize("name", sorted(ENGINES["llamacpp"].args or ()))
def test_our_launcher_understands_every_flag_that_a_catalog_may_name(name: str) -> None:
    # spec: A2, C1
    flag = BY_NAME[name]
    values = {"switch": ("", "on", "off"), "choice": flag.choices, "name": ("chatml",)}
    for value in values.get(flag.kind, ("7", "-1")):
        assert check(name, value) is None
        parser().parse_args(argv(replace(SPEC, args={name: value}))[1:])


def test_every_kind_has_an_adapter_and_what_is_not_driven_says_so() -> None:  # spec: A2
    assert set(ADAPTERS) == set(ENGINES)
    made = ADAPTERS["vllm"].command(replace(SPEC, kind="vllm"), ENVIRONMENT)
    assert isinstance(made, LastError)
    assert (made.message, made.permanent) == ("vllm is not driven by this version", True)
