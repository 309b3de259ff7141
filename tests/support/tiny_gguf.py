"""A tiny random llama model in GGUF, written by the standard library: llama.cpp loads it in ~0.1 s.

Its output is gibberish without end, so requests must set `max_tokens`. A larger `width` or more
`layers` make it slower.
"""

import random
import struct
from array import array
from collections.abc import Iterable
from pathlib import Path

import pytest

_ALIGN = 32
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model file for all tests of a session."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write(path)
    return path


def write(
    path: Path, *, layers: int = 2, width: int = 64, context: int = 8192, seed: int = 1
) -> None:
    """Write a model of about 0.5 MB (with the defaults)."""
    words = _words()
    meta = _meta(words, layers, width, context)
    head = b"GGUF" + struct.pack("<IQQ", 3, 3 + 9 * layers, len(meta)) + b"".join(meta)
    infos: list[bytes] = []
    data = bytearray()
    for name, shape, values in _tensors(words, layers, width, random.Random(seed)):
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)  # The innermost first.
        infos.append(_string(name) + dimensions + struct.pack("<IQ", 0, len(data)))  # 0: F32
        data += values.tobytes()
        data += bytes(-len(data) % _ALIGN)
    head += b"".join(infos)
    path.write_bytes(head + bytes(-len(head) % _ALIGN) + data)


def _words() -> list[tuple[str, int]]:
    special = [("<unk>", _UNKNOWN)]
    special += [(word, _CONTROL) for word in ("<s>", "</s>", "<|im_start|>", "<|im_end|>")]
    single_bytes = [(f"<0x{value:02X}>", _BYTE) for value in range(256)]
    letters = [("\u2581", _NORMAL)] + [(chr(code), _NORMAL) for code in range(33, 127)]
    return special + single_bytes + letters


def _meta(words: list[tuple[str, int]], layers: int, width: int, context: int) -> list[bytes]:
    heads = 4
    return [
        _entry("general.architecture", "llama"),
        _entry("general.name", "tiny-random"),
        _entry("llama.context_length", context),
        _entry("llama.embedding_length", width),
        _entry("llama.block_count", layers),
        _entry("llama.feed_forward_length", 2 * width),
        _entry("llama.attention.head_count", heads),
        _entry("llama.attention.head_count_kv", heads),
        _entry("llama.rope.dimension_count", width // heads),
        _entry("llama.attention.layer_norm_rms_epsilon", 1e-5),
        _entry("llama.vocab_size", len(words)),
        _entry("tokenizer.ggml.model", "llama"),
        _list("tokenizer.ggml.tokens", _STRING, (_string(word) for word, _ in words)),
        _list("tokenizer.ggml.scores", _F32, (struct.pack("<f", 0.0) for _ in words)),
        _list("tokenizer.ggml.token_type", _I32, (struct.pack("<i", kind) for _, kind in words)),
        _entry("tokenizer.ggml.bos_token_id", 1),
        _entry("tokenizer.ggml.eos_token_id", 2),
        _entry("tokenizer.ggml.unknown_token_id", 0),
        _entry("tokenizer.ggml.add_bos_token", value=True),
        _entry("tokenizer.chat_template", _TEMPLATE),
    ]


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _entry(key: str, value: str | float | bool) -> bytes:
    match value:
        case bool():
            body = struct.pack("<I?", _BOOL, value)
        case int():
            body = struct.pack("<II", _U32, value)
        case float():
            body = struct.pack("<If", _F32, value)
        case str():
            body = struct.pack("<I", _STRING) + _string(value)
    return _string(key) + body


def _list(key: str, kind: int, items: Iterable[bytes]) -> bytes:
    packed = list(items)
    return _string(key) + struct.pack("<IIQ", _ARRAY, kind, len(packed)) + b"".join(packed)


Tensor = tuple[str, tuple[int, ...], "array[float]"]


def _tensors(
    words: list[tuple[str, int]], layers: int, width: int, source: random.Random
) -> list[Tensor]:
    def noise(count: int, scale: float = 0.08) -> "array[float]":
        return array("f", (source.uniform(-scale, scale) for _ in range(count)))

    def matrix(name: str, inner: int, outer: int) -> Tensor:
        return name, (inner, outer), noise(inner * outer)

    ones = array("f", [1.0] * width)
    letters = 95  # Only they get output weights: the model never ends by itself.
    silent = array("f", [0.0] * ((len(words) - letters) * width))
    tensors: list[Tensor] = [
        matrix("token_embd.weight", width, len(words)),
        ("output_norm.weight", (width,), ones),
        ("output.weight", (width, len(words)), silent + noise(letters * width, 0.9)),
    ]
    for layer in range(layers):
        block = f"blk.{layer}."
        tensors.append((f"{block}attn_norm.weight", (width,), ones))
        tensors += [
            matrix(f"{block}attn_{part}.weight", width, width) for part in ("q", "k", "v", "output")
        ]
        tensors.append((f"{block}ffn_norm.weight", (width,), ones))
        tensors.append(matrix(f"{block}ffn_gate.weight", width, 2 * width))
        tensors.append(matrix(f"{block}ffn_up.weight", width, 2 * width))
        tensors.append(matrix(f"{block}ffn_down.weight", 2 * width, width))
    return tensors
