"""Imports without what they would like to have: a program that must decide at once loads no more."""

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without(package: str) -> Generator[None]:
    """What is imported within does not find `package`, unless it is loaded already.

    For packages that somebody else imports on the chance that they are there. Later imports find it.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # What Python takes for "not installed".
    try:
        yield
    finally:
        del sys.modules[package]
