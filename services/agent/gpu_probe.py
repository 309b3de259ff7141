# pyright: basic, reportAttributeAccessIssue=false
"""Reads the node's GPUs by NVML and prints them as JSON; the only file that imports pynvml.

A program of its own (`python -m services.agent.gpu_probe`), so that a hung driver hangs only it. No
NVIDIA library is no fault: a machine without cards.
"""

import json
import sys

import pynvml

GPU_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)


def read() -> dict[str, object]:
    """`{"cards": […], "fault": ""}`; a fault says why the cards could not be read."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return {"cards": [], "fault": ""}
    except pynvml.NVMLError as error:
        return {"cards": [], "fault": str(error)}
    try:
        count = pynvml.nvmlDeviceGetCount()
        return {"cards": [_card(index) for index in range(count)], "fault": ""}
    except pynvml.NVMLError as error:
        return {"cards": [], "fault": str(error)}


def _card(index: int) -> dict[str, object]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    card: dict[str, object] = {"uuid": _text(pynvml.nvmlDeviceGetUUID(handle)), "fault": ""}
    try:
        card["name"] = _text(pynvml.nvmlDeviceGetName(handle))
        card["memory_bytes"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError as error:
        gone = error.value in GPU_GONE
        card["fault"] = f"{error}; reboot the node" if gone else str(error)
    return card


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    json.dump(read(), sys.stdout)
