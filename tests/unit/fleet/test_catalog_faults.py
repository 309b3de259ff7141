"""What a catalog is refused for: each rule with its place, its words and how to mend it."""

from pathlib import Path

import pytest

from schemas.frames import Fault
from services.fleet.catalog import LARGEST_BYTES, CatalogFaults, from_json, from_yaml
from services.fleet.catalog_tree import Faults, TooManyFaults

DATA = Path(__file__).parents[2] / "data" / "catalogs"
CPU = "models:\n  m:\n    engine: llamacpp\n    source: /m.gguf\n"
GPU = "models:\n  m:\n    engine: vllm\n    source: /m\n    gpu: {class: l4}\n"
SGLANG = "models:\n  m:\n    engine: sglang\n    source: /m\n    gpu: {class: l4}\n"


def faults(text: str | bytes, file: str = "") -> tuple[Fault, ...]:
    made = from_yaml(text, file)
    assert isinstance(made, CatalogFaults)
    return made.faults


def the_fault(text: str) -> Fault:
    (fault,) = faults(text)
    return fault


def case(name: str) -> list[str]:
    return [
        f"{f.line}:{f.column} {f.path}: {f.message}; {f.hint}"
        for f in faults((DATA / f"{name}.yaml").read_bytes(), f"{name}.yaml")
    ]


def test_a_fault_has_file_line_column_path_words_and_hint() -> None:
    # spec: C1
    assert faults(CPU + "    replica: 2\n", "fleet.yaml") == (
        Fault(
            file="fleet.yaml",
            line=5,
            column=5,
            path="models.m.replica",
            message="unknown key `replica` in models.m",
            hint="did you mean `replicas`?",
        ),
    )


MODEL_RULES = [
    # (first lines, more lines, path, words of the message, words of the hint)
    (CPU, "replicas: -1", "replicas", "`-1`, not a whole number", ""),
    (CPU, "replicas: two", "replicas", "`two`, not a whole number", ""),
    (CPU, "replicas: off", "replicas", "`off`, not a whole number", ""),
    (CPU, "replicas: 100001", "replicas", "outside of 0 to 100000", ""),
    (CPU, "replicas:", "replicas", "has no value", "remove the key"),
    (CPU, "replicas: [1]", "replicas", "is a list where a single value belongs", ""),
    (CPU, "replicas: 2\n    min_ready: 3", "min_ready", "3, more than the 2", "2 or less"),
    (CPU, "hidden: maybe", "hidden", "`maybe`", "`true` or `false`"),
    (CPU, "task: rank", "task", "`rank`", "generate, embed"),
    (CPU, "patience: 60", "patience", "`60` has no unit", "`60s`"),
    (CPU, "drain_grace: soon", "drain_grace", "not a duration", "`15m`"),
    (CPU, "load_stall: 0", "load_stall", "end every load at once", "`off`"),
    (CPU, "metrics: {}", "metrics", "unknown key", "belongs inside an engine"),
    (CPU, "class: l4", "class", "unknown key", "belongs inside `gpu`"),
    (CPU, "memory: 1GiB", "memory", "unknown key", "inside `gpu` or `cpu`"),
    (CPU, "gpus: 2", "gpus", "unknown key", "gpu: {class: …, count: N}"),
    (CPU, "tensor_parallel: 2", "tensor_parallel", "unknown key", "gpu: {count: N}"),
    (CPU, "zzz: 2", "zzz", "unknown key", "a model knows engine, source"),
    (CPU, "cpu: {cores: 0}", "cpu.cores", "not a number above 0", "`0.5`"),
    (CPU, "cpu: {cores: -1}", "cpu.cores", "not a number above 0", "`0.5`"),
    (CPU, "cpu: {memory: 70}", "cpu.memory", "`70` has no unit", "`70GiB`"),
    (CPU, "cpu: {memory: off}", "cpu.memory", "`off` is not a size", "`70GiB`"),
    (CPU, "cpu: 2", "cpu", "a single value where a mapping belongs", ""),
    (CPU, "cpu: {core: 2}", "cpu.core", "unknown key `core` in models.m.cpu", "`cores`"),
    # spec: P2
    (CPU, "gpu: {count: 2}", "gpu", "`gpu` has no `class`", "leave `gpu` out"),
    (CPU, "gpu: {class: l4, count: 0}", "gpu.count", "`count: 0`", "`replicas: 0`"),
    (CPU, "gpu: {class: l4, count: 65}", "gpu.count", "outside of 1 to 64", ""),
    (CPU, "gpu: {class: H100 80GB}", "gpu.class", "cannot name a GPU class", "`h100-80gb`"),
    (CPU, "gpu: l4", "gpu", "`gpu` is a mapping", "gpu: {class: l4, count: 1}"),
    (CPU, "gpu: {class: l4}\n    cpu: {cores: 2}", "cpu", "`cpu` beside `gpu`", "keep `gpu`"),
    # spec: A2
    (
        CPU,
        "gpu: {class: l4}\n    nodes: 2",
        "nodes",
        "llamacpp serves from one node, not from 2",
        "",
    ),
    (CPU, "args: {tensor-parallel-size: 2}", "args.tensor-parallel-size", "may not", "one node"),
    (CPU, "args: {tensor_parallel: 2}", "args.tensor_parallel", "may not", "one node"),
    (CPU, "args: {rpc: a}", "args.rpc", "may not stand in `args`", "one node"),
    (GPU, "nodes: 401", "nodes", "outside of 1 to 400", ""),
    (GPU, "nodes: 0", "nodes", "outside of 1 to 400", ""),
    (GPU, "args: {port: 1}", "args.port", "may not stand in `args`", "chooses where"),
    (GPU, "args: {--port: 1}", "args.--port", "may not stand in `args`", "chooses where"),
    (GPU, "args: {tensor-parallel-size: 2}", "args.tensor-parallel-size", "may not", "`gpu.count`"),
    (GPU, "args: {data-parallel-size-local: 2}", "args.data-parallel-size-local", "may not", ""),
    (GPU, "args: {nnodes: 2}", "args.nnodes", "may not stand in `args`", "`nodes`"),
    (GPU, "args: {model: x}", "args.model", "may not stand in `args`", "`source`"),
    (GPU, "args: {served-model-name: x}", "args.served-model-name", "may not", "`aliases`"),
    (GPU, "args: {api-key: x}", "args.api-key", "may not stand in `args`", "router"),
    (GPU, "args: {tp: 2}", "args.tp", "is a short flag", "`gpu.count`"),
    (SGLANG, "args: {tp-size: 2}", "args.tp-size", "may not stand in `args`", "`gpu.count`"),
    (SGLANG, "args: {enable-metrics: }", "args.enable-metrics", "may not", "probes"),
    (CPU, "args: {alias: x}", "args.alias", "may not stand in `args`", "`aliases`"),
    (CPU, "args: {metrics: }", "args.metrics", "may not stand in `args`", "probes"),
    (CPU, "args: {hf-repo: x}", "args.hf-repo", "may not stand in `args`", "`source`"),
    (CPU, "args: {c: 2048}", "args.c", "is a short flag", "`ctx-size`"),
    (CPU, "args: {-ngl: 99}", "args.-ngl", "is a short flag", "`n-gpu-layers`"),
    (CPU, "args: {ctx_size: 1}", "args.ctx_size", "is no flag name", "`ctx-size`"),
    (CPU, "args: {--ctx-size: 1}", "args.--ctx-size", "is no flag name", "`ctx-size`"),
    (CPU, "args: {'a b': 1}", "args.a b", "is no flag name", ""),
    (GPU, "args: {x: --port=1}", "args.x", "would be read as another flag", ""),
    (GPU, 'args: {x: "a\\nb"}', "args.x", "U+000A", "one line"),
    (GPU, 'args: {x: "a\\0b"}', "args.x", "U+0000", "one line"),
    (GPU, "args: {x: [a]}", "args.x", "is a list where a single value belongs", ""),
    (GPU, f"args: {{x: {'y' * 8193}}}", "args.x", "8193 characters", "file"),
    # spec: C1
    (CPU, "args: {ctx-sise: 1}", "args.ctx-sise", "no flag that this engine takes", "`ctx-size`"),
    (CPU, "args: {lora: /x}", "args.lora", "no flag that this engine takes", "it takes batch-"),
    (CPU, "args: {log-file: /x}", "args.log-file", "no flag that this engine takes", ""),
    (CPU, "args: {threads: many}", "args.threads", "`many` is no whole number", "`threads: 8`"),
    (CPU, "args: {threads: }", "args.threads", "`` is no whole number", "`threads: 8`"),
    (CPU, "args: {warmup: 7}", "args.warmup", "neither on nor off", "`warmup: on`"),
    (CPU, "args: {pooling: max}", "args.pooling", "none of its values", "none, mean"),
    (CPU, "args: {chat-template: /etc/x}", "args.chat-template", "is no name", "`chatml`"),
    (GPU, "args: {trust-remote-code: }", "args.trust-remote-code", "may not", "run code"),
    (GPU, "args: {load-format: x}", "args.load-format", "may not", "run code"),
    (GPU, "args: {tool-parser-plugin: x}", "args.tool-parser-plugin", "may not", "run code"),
    (GPU, "args: {worker-extension-cls: x}", "args.worker-extension-cls", "may not", "run code"),
    (GPU, "args: {chat-template: x}", "args.chat-template", "may not", "file or folder"),
    (GPU, "args: {tokenizer: x}", "args.tokenizer", "may not", "file or folder"),
    (GPU, "args: {hf-config-path: x}", "args.hf-config-path", "may not", "file or folder"),
    (GPU, "args: {lora-modules: x}", "args.lora-modules", "may not", "`source`"),
    (GPU, "args: {speculative-config: x}", "args.speculative-config", "may not", "`source`"),
    (GPU, "env: {VLLM_PLUGINS: x}", "env.VLLM_PLUGINS", "may not", "run code"),
    (SGLANG, "args: {trust-remote-code: }", "args.trust-remote-code", "may not", "run code"),
    (SGLANG, "args: {load-format: x}", "args.load-format", "may not", "run code"),
    (SGLANG, "args: {lora-paths: x}", "args.lora-paths", "may not", "file or folder"),
    (SGLANG, "args: {chat-template: x}", "args.chat-template", "may not", "file or folder"),
    (CPU, "args: [--parallel, 8]", "args", "is a list where a mapping belongs", ""),
    # spec: W2
    (CPU, "env: {1A: b}", "env.1A", "cannot name a variable", ""),
    (CPU, "env: {HF_TOKEN: hf_abc}", "env.HF_TOKEN", "looks like a secret", "{secret: NAME}"),
    (CPU, "env: {HF_TOKEN: {secret: ../x}}", "env.HF_TOKEN.secret", "cannot name a secret", ""),
    (CPU, "env: {HF_TOKEN: {secrte: x}}", "env.HF_TOKEN.secrte", "unknown key", "`secret`"),
    (CPU, "env: {HF_TOKEN: {}}", "env.HF_TOKEN", "neither a text nor a secret", ""),
    (CPU, "env: {A: }", "env.A", "has no value", '`""`'),
    (CPU, f"env: {{A: {'y' * 8193}}}", "env.A", "8193 characters", ""),
    (CPU, "env: {A: [b]}", "env.A", "is a list where a single value belongs", ""),
    (CPU, "env: {LD_PRELOAD: x}", "env.LD_PRELOAD", "may not stand in `env`", "program"),
    (CPU, "env: {CUDA_VISIBLE_DEVICES: 0}", "env.CUDA_VISIBLE_DEVICES", "may not", "cards"),
    (CPU, "env: {LLAMA_ARG_PORT: 1}", "env.LLAMA_ARG_PORT", "may not", "`args`"),
    (GPU, "env: {VLLM_API_KEY: {secret: k}}", "env.VLLM_API_KEY", "may not", "router"),
    # spec: C10
    (CPU, "aliases: small", "aliases", "a single value where a list belongs", "`aliases: [small]`"),
    (CPU, "aliases: [[a]]", "aliases[0]", "an alias is a list", ""),
    (CPU, "aliases: [m]", "aliases[0]", "the model's own name (line 2)", "remove"),
    (CPU, "aliases: [M]", "aliases[0]", "the model's own name (line 2)", "remove"),
    (CPU, "aliases: [a b]", "aliases[0]", "has a blank in it", "`a-b`"),
    (CPU, "aliases: [a, A]", "aliases[1]", "but for the spelling `a`, twice in the list", "remove"),
    (CPU, f"aliases: [{'a' * 129}]", "aliases[0]", "129 characters", "shorten"),
    (CPU, 'aliases: ["a\\u200bb"]', "aliases[0]", "U+200B, which nobody sees", ""),
]


@pytest.mark.parametrize(("first", "more", "path", "message", "hint"), MODEL_RULES)
def test_refuses(first: str, more: str, path: str, message: str, hint: str) -> None:
    fault = the_fault(f"{first}    {more}\n")
    assert fault.path == f"models.m.{path}"
    assert message in fault.message
    assert hint in fault.hint
    assert fault.line >= 5
    assert fault.column >= 5


WHOLE_RULES = [
    # (text, path, words of the message, words of the hint)
    ("a", "", "a catalog is a mapping", "`models:`"),
    ("{}", "", "`models` is missing", "`models: {}`"),
    ("models:", "models", "has no value", ""),
    ("models: x", "models", "`models` is `x`", "`models: {}`"),
    ("models: {m: }", "models.m", "has no keys", "{engine: …, source: …}"),
    ("models: {m: {engine: llamacpp}}", "models.m", "names no `source`", "hub id"),
    ("models: {m: {source: x}}", "models.m", "names no `engine`", "llamacpp, sglang, vllm"),
    ("models: {m: {engine: llamacpp, source: ''}}", "models.m.source", "path or hub id", ""),
    ("models: {m: {engine: llamacpp, source: -x}}", "models.m.source", "path or hub id", "`-`"),
    ("models: {m: {engine: vllm, source: x}}", "models.m", "vllm needs cards", "only llamacpp"),
    ("models: {m: {engine: sglang, source: x}}", "models.m", "sglang needs cards", "llamacpp"),
    ("models: {m: {engine: LLAMA.CPP, source: x}}", "models.m.engine", "`LLAMA.CPP`", "`llamacpp`"),
    ("models: {m: {engine: tgi, source: x}}", "models.m.engine", "`tgi`", "llamacpp, sglang, vllm"),
    ("models: {-m: {engine: llamacpp, source: x}}", "models.-m", "begins with `-`", ""),
    ("models: {m x: {engine: llamacpp, source: x}}", "models.m x", "a blank in it", "`m-x`"),
    ("models: {'': {engine: llamacpp, source: x}}", "models.", "a model's name is empty", ""),
    ("models: {}\nreplicas: 3", "replicas", "unknown key", "belongs inside a model"),
    ("models: {}\nmodel: {}", "model", "unknown key", "`models`"),
    ("models: {}\nengines: []", "engines", "is a list where a mapping belongs", ""),
    ("models: {}\nengines: {e: {}}", "engines.e", "does not say its `kind`", "llamacpp, vllm"),
    ("models: {}\nengines: {e: }", "engines.e", "has no keys", "{kind: vllm}"),
    ("models: {}\nengines: {e: {kind: vLLM}}", "engines.e.kind", "`vLLM`", "`vllm`"),
    ("models: {}\nengines: {e: {kind: tgi}}", "engines.e.kind", "`tgi`", "llamacpp, vllm"),
    ("models: {}\nengines: {E: {kind: vllm}}", "engines.E", "cannot name an engine", "small"),
    ("models: {}\nengines: {vllm: {kind: sglang}}", "engines.vllm.kind", "name of another", ""),
    ("models: {}\nengines: {vllm: {version: ''}}", "engines.vllm.version", "one word", '"0.32"'),
    ("models: {}\nengines: {vllm: {command: x}}", "engines.vllm.command", "unknown key", ""),
    # spec: T3
    (
        "models: {}\nengines: {vllm: {metrics: {waiting: w}}}",
        "engines.vllm.metrics",
        "not `running`",
        "`{}` for vLLM's names",
    ),
    (
        "models: {}\nengines: {vllm: {metrics: {running: '', waiting: w}}}",
        "engines.vllm.metrics",
        "not `running`",
        "",
    ),
    (
        "models: {}\nengines: {vllm: {metrics: {running: r, wating: w}}}",
        "engines.vllm.metrics.wating",
        "no figure",
        "`waiting`",
    ),
    (
        "models: {}\nengines: {vllm: {metrics: {running: 'r{a=1}'}}}",
        "engines.vllm.metrics.running",
        "no metric name",
        "without labels",
    ),
]


@pytest.mark.parametrize(("text", "path", "message", "hint"), WHOLE_RULES)
def test_refuses_as_a_whole(text: str, path: str, message: str, hint: str) -> None:
    found = [f for f in faults(text) if f.path == path and message in f.message]
    assert found, faults(text)
    assert hint in found[0].hint


def test_a_gang_takes_gpu_nodes() -> None:
    told = [f.message for f in faults("models: {m: {engine: vllm, source: x, nodes: 2}}")]
    assert told == [
        "`m` has no `gpu`, and vllm needs cards",
        "a replica over several nodes takes whole GPU nodes",
    ]


def test_names_that_share_a_subject_are_refused() -> None:
    model = "{engine: llamacpp, source: x}"
    fault = the_fault(f"models:\n  釠丂: {model}\n  姌七: {model}\n")
    assert (fault.line, fault.message) == (
        3,
        "`姌七` and `釠丂` (line 2) share a subject in the log",
    )


def test_a_catalog_fits_one_message_of_the_log() -> None:
    value = "x" * 8000
    args = ", ".join(f"a{n}: {value}" for n in range(125))
    text = f"models: {{m: {{engine: vllm, gpu: {{class: l4}}, source: x, args: {{{args}}}}}}}"
    fault = the_fault(text)
    assert "bytes in compact form" in fault.message
    assert str(LARGEST_BYTES) in fault.message


def test_every_fault_is_told_at_once_in_order_of_place() -> None:
    # spec: C1
    text = "models:\n  a: {engine: vlm, replicas: x}\n  b: {source: y, gpu: {count: 1}}\nzz: 1\n"
    assert [(f.line, f.path) for f in faults(text)] == [
        (2, "models.a"),
        (2, "models.a.engine"),
        (2, "models.a.replicas"),
        (3, "models.b"),
        (3, "models.b.gpu"),
        (4, "zz"),
    ]


def test_a_flood_of_faults_ends_the_reading() -> None:
    text = "models: {}\n" + "".join(f"k{n}: 1\n" for n in range(300))
    told = faults(text)
    assert (len(told), told[-1].message) == (201, "and more faults, which are not told")
    found = Faults()
    for line in range(200):
        found.add_at(line, 1, "a fault")
    with pytest.raises(TooManyFaults):
        found.add_at(200, 1, "one more")


def test_equal_keys_are_refused_naming_both_lines() -> None:
    # case: CC-01
    assert case("CC-01") == [
        "11:5 models.big-chat.replicas: `replicas` is written twice: in line 10 and in line 11; "
        "keep one of the two",
        "12:3 models.tiny-chat: `tiny-chat` is written twice: in line 2 and in line 12; "
        "keep one of the two",
    ]


def test_names_that_collide_are_refused_naming_both_places() -> None:
    # case: CC-03
    assert [line.partition(": ")[2].partition(";")[0] for line in case("CC-03")] == [
        "the alias `big-chat` of `tiny-chat` is the name of another model (line 3)",
        "the alias `default` of `big-chat` is an alias of `tiny-chat` too (line 2)",
        "`Tiny-Chat` is but for the spelling `tiny-chat`, the name of another model (line 2)",
        "the alias `Tiny-Chat` is the model's own name (line 4)",
        "an alias is empty",
        "an alias is empty",
        "the alias `embed-v1` of `embed` is twice in the list (line 5)",
    ]


def test_misplaced_and_misspelt_keys_are_told_with_the_nearest() -> None:
    # case: CC-05
    told = {line.split()[1].rstrip(":"): line.partition("; ")[2] for line in case("CC-05")}
    assert told == {
        "models.tiny-chat.engine": "write `llamacpp`",
        "models.tiny-chat.list_aliases": "list a model's other names in its `aliases`",
        "models.tiny-chat.replica": "did you mean `replicas`?",
        "models.tiny-chat.arg": "did you mean `args`?",
        "models.tiny-chat.health": told["models.tiny-chat.health"],
        "models.tiny-chat.load_timeout": "write `load_stall`: how long a load may stand still",
        "models.big-chat.engine": "write `vllm`",
        "models.big-chat.command": r"remove the `\`",
        "replicas": "`replicas` belongs inside a model",
        "model": "did you mean `models`?",
    }
    assert told["models.tiny-chat.health"].startswith("a model knows engine, source")
    assert any(
        line.startswith("17:5 models.big-chat.command: unknown key") for line in case("CC-05")
    )
    assert any(
        line.startswith(r"18:28 models.big-chat.command: `\` at the end") for line in case("CC-05")
    )


def test_a_broken_and_a_half_valid_file_are_refused_with_line_and_reason() -> None:
    # case: HR-01
    assert case("HR-01-bad") == [
        "8:12 : this is no YAML: mapping values are not allowed in this context; "
        "line it up with the line above, or put a value that holds `: ` in quotes"
    ]
    assert case("HR-01-half") == [
        "7:13 models.big-chat.engine: no engine is called `no-such-engine`; "
        "one of llamacpp, sglang, vllm"
    ]


def test_models_as_a_list_are_told_how_to_stand_and_checked_all_the_same() -> None:
    assert case("list-form") == [
        "2:3 models: `models` is a list; each model stands under its own name; "
        "write `tiny-chat: {engine: …, source: …}` instead of `- name: tiny-chat`",
        "5:5 models[0].replica: unknown key `replica` in models[0]; did you mean `replicas`?",
    ]


def test_json_passes_the_same_rules_and_names_the_path() -> None:
    # spec: C1
    made = from_json(b'{"models":{"m":{"engine":"vllm","source":"x","replica":2,"hidden":null}}}')
    assert isinstance(made, CatalogFaults)
    assert {(f.path, f.line) for f in made.faults} == {
        ("models.m", 0),
        ("models.m.replica", 0),
        ("models.m.hidden", 0),
    }


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "this is no JSON"),
        (b"{", "this is no JSON"),
        (b"\xff", "this is no JSON"),
        (b"[" * 100_000, "this is no JSON"),
        (b"[" * 40 + b"]" * 40, "more than 16 levels deep"),
        (b'{"models":{},"models":{}}', "`models` is written twice"),
        (b'{"models":{"\\ud800":{}}}', "U+D800"),
        (b'{"models":{"m":{"engine":"llamacpp","source":"x","replicas":1e400}}}', "`1e400`"),
        (b'{"models":{"m":{"engine":"llamacpp","source":"x","replicas":NaN}}}', "`NaN`"),
        (b" " * 1_100_000, "more than a catalog may have"),
    ],
)
def test_refuses_json(raw: bytes, message: str) -> None:
    made = from_json(raw)
    assert isinstance(made, CatalogFaults)
    assert any(message in fault.message for fault in made.faults), made.faults
