from pathlib import Path

import pytest

from schemas.beats import EngineLoad
from services.fleet.engine_metrics import parse

DATA = Path(__file__).parents[2] / "data" / "engines"
VLLM = (DATA / "vllm-0.32.0-metrics.txt").read_text()
LLAMA = (DATA / "llama-b11434-metrics.txt").read_text()


def test_reads_a_real_vllm_page() -> None:  # spec: T3
    assert parse(VLLM, "vllm", None) == EngineLoad(
        running=4.0,
        waiting=20.0,
        kv_usage=0.0019533634476864847,
        prompt_tokens=108.0,
        generation_tokens=1885.0,
    )


def test_reads_a_real_llama_page_and_leaves_its_kv_use_unknown() -> None:  # spec: T3
    assert parse(LLAMA, "llamacpp", None) == EngineLoad(
        running=1.0, waiting=2.0, kv_usage=None, prompt_tokens=35.0, generation_tokens=0.0
    )


def test_an_empty_mapping_means_the_names_of_vllm() -> None:  # spec: T3
    assert parse(VLLM, "llamacpp", {}) == parse(VLLM, "vllm", None)
    assert parse(LLAMA, "llamacpp", {}) == EngineLoad()


def test_a_mapping_is_a_complete_statement_and_its_blanks_stay_blank() -> None:  # spec: T3
    only_running = {"running": "vllm:num_requests_running", "waiting": ""}
    assert parse(VLLM, "vllm", only_running) == EngineLoad(running=4.0)


def test_adds_up_the_series_of_several_engines_and_takes_the_fullest_cache() -> None:
    page = (
        'vllm:num_requests_running{engine="0",model_name="a b} c"} 4.0\n'
        'vllm:num_requests_running{engine="1",model_name="a \\"b\\""} 3.0 1700000000\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        'vllm:kv_cache_usage_perc{engine="1"} 0.75\n'
    )
    assert parse(page, "vllm", None) == EngineLoad(running=7.0, kv_usage=0.75)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "many"])
def test_what_is_no_number_is_unknown(value: str) -> None:  # spec: T3
    page = f'vllm:num_requests_running{{e="0"}} {value}\nvllm:num_requests_running{{e="1"}} 3\n'
    page += f'vllm:kv_cache_usage_perc{{e="0"}} 0.5\nvllm:kv_cache_usage_perc{{e="1"}} {value}\n'
    assert parse(page, "vllm", None) == EngineLoad()


def test_a_name_that_only_begins_alike_is_another() -> None:
    page = 'vllm:num_requests_waiting_by_reason{reason="capacity"} 20.0\n'
    assert parse(page, "vllm", None).waiting is None


def test_a_page_that_is_none_says_nothing() -> None:
    assert parse("<html>\n{}\n\n   \nvllm:num_requests_running", "vllm", None) == EngineLoad()
