# pyright: basic, reportAttributeAccessIssue=false
"""llama.cpp's HTTP server, from the xllamacpp wheel, as an ordinary process.

Takes llama-server's own flag names, so that one adapter drives both programs. The only file that
imports xllamacpp.

SIGTERM before the model is loaded ends the process at once. Later it waits up to `DRAIN_SECONDS`
for running requests; a second one ends it at once. It leaves by `os._exit`: the server object's
destructor blocks for 30 s while a stream is open, and for ever right after a load.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from services.fleet.catalog_llamacpp import FLAGS, Flag

DRAIN_SECONDS = 5.0
POLL_SECONDS = 0.1
_DEFAULTS = {
    "host": "127.0.0.1",
    "port": 8080,
    "ctx_size": 0,
    "parallel": 1,
    "n_gpu_layers": -1,
    "slots": True,
    "warmup": True,
    "verbosity": 3,
}


class _Parser(argparse.ArgumentParser):
    """Complains in llama-server's words, which the adapter's failure table knows."""

    def error(self, message: str) -> None:  # type: ignore[override]
        unknown = message.removeprefix("unrecognized arguments: ")
        print(f"error: invalid argument: {unknown}", file=sys.stderr, flush=True)  # noqa: T201
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    """The flags, under llama-server's names."""
    flags = _Parser(prog="llamacpp-server", allow_abbrev=False)
    for flag in FLAGS:
        _add(flags, flag)
    flags.set_defaults(**_DEFAULTS)
    return flags


def _add(flags: argparse.ArgumentParser, flag: Flag) -> None:
    long = [f"--{name}" for name in (flag.name, flag.also) if name]
    names = [f"-{flag.short}", *long] if flag.short else long
    match flag.kind:
        case "switch" if flag.negatable:
            flags.add_argument(*names, action=argparse.BooleanOptionalAction)
        case "switch":
            flags.add_argument(*names, action="store_true")
        case "list":
            flags.add_argument(*names, action="append", default=[])
        case "whole":
            flags.add_argument(*names, type=int)
        case _:
            choices, required = flag.choices or None, flag.name == "model"
            flags.add_argument(*names, choices=choices, required=required)


def _params(asked: argparse.Namespace) -> object:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = asked.model
    params.model_alias = set(asked.alias)
    params.hostnames = [asked.host]
    params.port = asked.port
    params.n_ctx = asked.ctx_size
    params.n_parallel = asked.parallel
    params.n_gpu_layers = asked.n_gpu_layers
    params.api_keys = asked.api_key
    params.embedding = asked.embeddings
    params.endpoint_metrics = asked.metrics
    params.endpoint_slots = asked.slots
    params.ui = not asked.no_webui
    params.warmup = asked.warmup
    params.verbosity = asked.verbosity
    if asked.batch_size is not None:
        params.n_batch = asked.batch_size
    if asked.ubatch_size is not None:
        params.n_ubatch = asked.ubatch_size
    if asked.threads is not None:
        params.cpuparams.n_threads = asked.threads
        params.cpuparams_batch.n_threads = asked.threads
    if asked.threads_batch is not None:
        params.cpuparams_batch.n_threads = asked.threads_batch
    if asked.threads_http is not None:
        params.n_threads_http = asked.threads_http
    if asked.pooling is not None:
        pooling = f"LLAMA_POOLING_TYPE_{asked.pooling.upper()}"
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, pooling)
    if asked.chat_template is not None:
        params.chat_template = asked.chat_template
    return params


def _say(text: str) -> None:
    print(f"llamacpp-server: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _serve(asked: argparse.Namespace) -> NoReturn:
    import xllamacpp

    try:
        server = xllamacpp.Server(_params(asked))
    except RuntimeError as error:
        _say(f"fatal: {error}")
        sys.exit(1)  # Not at once: the engine's own thread may still be writing why.
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    _say(f"listening on {server.listening_address}")
    stop.wait()
    _drain(server.listening_address, asked.api_key)
    _say("stopped")
    os._exit(0)  # Here, where `server` still lives: returning would run its destructor.


def _drain(base: str, keys: Sequence[str]) -> None:
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end and _busy(base, keys):
        time.sleep(POLL_SECONDS)


def _busy(base: str, keys: Sequence[str]) -> bool:
    headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
    request = urllib.request.Request(f"{base}/slots", headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310
            return any(slot["is_processing"] for slot in json.load(answer))
    except OSError:
        return False


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Serve until told to stop."""
    _serve(parser().parse_args(argv))


if __name__ == "__main__":
    main()
