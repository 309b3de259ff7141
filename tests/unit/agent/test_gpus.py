import re

import pytest

from schemas.documents import Card
from schemas.ids import GpuUuid
from services.agent.gpus import Found, Snapshot, cards, gpu_class

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "mib", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80gb"),
        ("NVIDIA H200", 143771, "h200-141gb"),
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-80gb"),
        ("NVIDIA L4", 23034, "l4"),
        ("NVIDIA L40S", 46068, "l40s"),
        ("Tesla T4", 15360, "t4"),
        ("Tesla V100-SXM2-32GB", 32768, "v100-32gb"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090"),
        ("NVIDIA Something New", 1024, "something-new-x[0-9a-f]{8}"),
        ("", 0, "unknown"),
    ],
)
def test_a_class_is_what_a_profile_asks_for(name: str, mib: int, expected: str) -> None:
    assert re.fullmatch(expected, gpu_class(name, mib * MIB))


def test_a_card_that_cannot_be_read_is_unhealthy_and_says_why() -> None:  # spec: A1
    snapshot = Snapshot(
        cards=(Found("GPU-1", "NVIDIA L4", 23034 * MIB), Found("GPU-2", fault="lost"))
    )
    assert cards(snapshot) == (
        Card(uuid=GpuUuid("GPU-1"), gpu_class="l4", memory_bytes=23034 * MIB),
        Card(
            uuid=GpuUuid("GPU-2"),
            gpu_class="unknown",
            memory_bytes=0,
            health="unhealthy",
            reason="lost",
        ),
    )
