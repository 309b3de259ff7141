"""What a good catalog becomes."""

import copy
import pickle
from pathlib import Path

import msgspec
import pytest

from schemas.catalog import CpuNeed, EngineEnvironment, GpuNeed, Model, Profile
from schemas.documents import SecretRef
from schemas.ids import EngineName, ModelName
from services.fleet import catalog as catalogs
from services.fleet.catalog import EMPTY, Catalog, from_json, from_yaml, show

DATA = Path(__file__).parents[2] / "data" / "catalogs"
TINY = "models: {tiny: {engine: llamacpp, source: /m.gguf%s}}"
ON_A_CARD = "models: {tiny: {engine: vllm, gpu: {class: l4}, source: /m%s}}"


def good(text: str | bytes) -> Catalog:
    made = from_yaml(text)
    assert isinstance(made, Catalog), made
    return made


def the_model(text: str) -> Model:
    (model,) = good(text).models.values()
    return model


def test_reads_every_key_of_the_example() -> None:
    made = good((DATA / "design.yaml").read_bytes())
    vllm = EngineEnvironment(name=EngineName("vllm"), kind="vllm", version="0.32")
    llama = made.models[ModelName("llama-70b")]
    assert llama == Model(
        name=ModelName("llama-70b"),
        profile=Profile(
            engine=vllm,
            source="/models/llama-3.3-70b",
            gpu=GpuNeed(gpu_class="h100-80gb", count=4, memory_bytes=70 << 30),
            args={"max-model-len": "32768"},
            env={"HF_TOKEN": SecretRef(secret="hf-token")},
        ),
        profile_hash=llama.profile_hash,
        replicas=3,
        min_ready=2,
        aliases=(ModelName("llama"), ModelName("gpt-4o-mini")),
    )
    qwen = made.models[ModelName("qwen-235b")]
    assert (qwen.profile.nodes, qwen.patience_seconds, qwen.drain_grace_seconds) == (
        2,
        120.0,
        900.0,
    )
    smollm = made.models[ModelName("smollm2")]
    assert smollm.profile.cpu == CpuNeed(cores=2.0, memory_bytes=1 << 30)
    assert smollm.profile.engine.metrics == {
        "running": "llamacpp:requests_processing",
        "waiting": "llamacpp:requests_deferred",
    }
    assert made.models[ModelName("embedder")].profile.task == "embed"
    assert list(made.models) == sorted(made.models)


def test_defaults_are_one_replica_on_one_cpu_node() -> None:
    model = the_model(TINY % "")
    assert (model.replicas, model.profile.nodes, model.min_ready) == (1, 1, None)
    assert (model.profile.cpu, model.profile.gpu) == (CpuNeed(), None)
    assert (model.patience_seconds, model.drain_grace_seconds) == (60.0, 600.0)
    assert model.load_stall_seconds == 600.0


def test_a_class_without_a_count_is_one_card() -> None:
    model = the_model("models: {m: {engine: vllm, source: s, gpu: {class: l4}}}")
    assert model.profile.gpu == GpuNeed(gpu_class="l4", count=1)


def test_unset_zero_and_off_are_three_things() -> None:
    graces = [
        the_model(TINY % written).drain_grace_seconds
        for written in ("", ", drain_grace: 0", ", drain_grace: off")
    ]
    assert graces == [600.0, 0.0, None]
    replicas = [the_model(TINY % written).replicas for written in ("", ", replicas: 0")]
    assert replicas == [1, 0]
    ready = [the_model(TINY % written).min_ready for written in ("", ", min_ready: 0")]
    assert ready == [None, 0]


def test_scalars_are_text() -> None:
    model = the_model(ON_A_CARD % ", args: {flash-attn: off, x: 1e3, y: yes, z: 010, alone: }")
    assert model.profile.args == {
        "flash-attn": "off",
        "x": "1e3",
        "y": "yes",
        "z": "010",
        "alone": "",
    }


@pytest.mark.parametrize(
    ("written", "metrics"),
    [
        ("", None),
        (", metrics: {}", {}),
        (", metrics: {running: r}", {"running": "r"}),
        (", metrics: {running: r, waiting: ''}", {"running": "r"}),
        (", metrics: {running: r, kv_usage: }", {"running": "r"}),
    ],
)
def test_a_metrics_map_is_left_out_empty_or_complete(
    written: str, metrics: dict[str, str] | None
) -> None:
    # spec: T3
    made = good(f"engines: {{e: {{kind: vllm{written}}}}}\nmodels: {{}}")
    assert made.engines[EngineName("e")].metrics == metrics


def test_every_engine_kind_is_there_under_its_own_name() -> None:
    assert {str(name): engine.kind for name, engine in EMPTY.engines.items()} == {
        "llamacpp": "llamacpp",
        "sglang": "sglang",
        "vllm": "vllm",
    }


def test_a_stopped_model_keeps_its_min_ready_for_its_return() -> None:
    # spec: C9
    assert the_model(TINY % ", replicas: 0, min_ready: 2").min_ready == 2


def test_a_model_answers_to_its_name_and_aliases() -> None:
    # spec: C10
    made = good(TINY % ", aliases: [small, default]")
    assert [made.resolve(name) for name in ("tiny", "small", "default")] == [
        made.models[ModelName("tiny")]
    ] * 3
    assert made.resolve("TINY") is None


def test_files_that_mean_the_same_have_one_hash() -> None:
    one = good("models: {b: {engine: llamacpp, source: s}, a: {engine: llamacpp, source: s}}")
    other = good(
        "engines: {llamacpp: {}}  # said, but nothing new\n"
        "models:\n  a: {source: s, engine: llamacpp, replicas: 1, patience: 1m}\n"
        "  b: {engine: llamacpp, source: 's', drain_grace: 600s, hidden: no, cpu: {cores: 1.0}}\n"
    )
    assert (one, one.hash, hash(one)) == (other, other.hash, hash(other))
    assert one.hash != good("models: {}").hash


def test_the_profile_hash_changes_with_the_profile_alone() -> None:
    base = the_model(TINY % "").profile_hash
    same = [", replicas: 3", ", aliases: [x]", ", patience: off", ", hidden: true", ", args: {}"]
    assert {the_model(TINY % written).profile_hash for written in same} == {base}
    changes = [
        ", args: {ctx-size: 4096}",
        ", env: {A: b}",
        ", env: {A: {secret: b}}",
        ", cpu: {cores: 2}",
        ", gpu: {class: l4}",
        ", gpu: {class: l4, memory: 1GiB}",
        ", task: embed",
    ]
    hashes = {the_model(TINY % written).profile_hash for written in changes}
    pinned = the_model("engines: {llamacpp: {version: '2'}}\n" + TINY % "").profile_hash
    assert len({base, pinned} | hashes) == len(changes) + 2
    assert len(base) == 16


def test_hashes_stay_as_they_were_released() -> None:
    """A hash that moves with a version of ours would roll every model of every fleet."""
    made = good(TINY % ", args: {ctx-size: 4096}")
    assert made.hash == "4adbf0e10071685c7ddce561e189d0c5b4615331202f077c4ab3961b91e24b73"
    assert made.models[ModelName("tiny")].profile_hash == "638d9caf55f200f7"


def test_source_and_show_make_the_same_catalog_again() -> None:
    # spec: C9
    made = good((DATA / "design.yaml").read_bytes())
    for again in (from_json(made.source()), from_yaml(show(made))):
        assert isinstance(again, Catalog)
        assert again == made
        assert (again.hash, dict(again.models)) == (made.hash, dict(made.models))
        assert dict(again.engines) == dict(made.engines)


def test_nothing_but_the_constructor_makes_a_catalog() -> None:
    # spec: C1
    made = good(TINY % "")
    with pytest.raises(TypeError, match="from_yaml or from_json alone"):
        Catalog(object(), {}, ())
    with pytest.raises(TypeError):
        Catalog()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(made.source(), type=Catalog)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"models": {}}, Catalog)
    with pytest.raises(TypeError, match="from_yaml or from_json alone"):
        pickle.dumps(made)
    with pytest.raises(TypeError, match="from_yaml or from_json alone"):
        copy.copy(made)
    assert [name for name in vars(catalogs) if isinstance(vars(catalogs)[name], Catalog)] == [
        "EMPTY"
    ]


def test_a_catalog_cannot_be_changed() -> None:
    made = good(TINY % "")
    with pytest.raises(TypeError):
        made.models[ModelName("x")] = made.models[ModelName("tiny")]  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(AttributeError):
        made.hash = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_an_anchor_may_repeat_a_value() -> None:
    made = good(
        "models:\n"
        "  a: {engine: vllm, source: a, gpu: &card {class: l4, count: 2}}\n"
        "  b: {engine: vllm, source: b, gpu: *card}\n"
    )
    assert {model.profile.gpu for model in made.models.values()} == {
        GpuNeed(gpu_class="l4", count=2)
    }


def test_a_catalog_is_told_by_hash_and_names() -> None:
    made = good(TINY % "")
    assert repr(made) == f"<Catalog {made.hash[:8]}: tiny>"


def test_the_empty_catalog_is_an_ordinary_one() -> None:
    assert from_yaml("models: {}") == EMPTY == from_json(EMPTY.source())
