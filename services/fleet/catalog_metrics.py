"""A mapping of figures to an engine's metric names, as a catalog or a router's own list writes it.

`{}` means vLLM's names. Anything else is a complete statement that names at least `running`; what it
leaves out, or leaves blank, stays unknown.
"""

import re

from services.fleet.catalog_section import as_scalar
from services.fleet.catalog_tree import Entries, Entry, Faults
from services.fleet.engine_metrics import FIGURES
from services.fleet.nearest import nearest

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def read_metrics(node: Entries, faults: Faults) -> dict[str, str]:
    """The metric names by figure."""
    names = dict[str, str]()
    for figure, entry in node.entries.items():
        name = _name(figure, entry, faults)
        if name:
            names[figure] = name
    if node.entries and "running" not in names:
        hint = "name it too, or write `{}` for vLLM's names, or leave `metrics` out for the engine's own"
        faults.add(node, "`metrics` names figures but not `running`", hint)
    return names


def _name(figure: str, entry: Entry, faults: Faults) -> str:
    """Empty: none, or a fault."""
    name = as_scalar(entry.value, f"`{figure}`", faults)
    if figure not in FIGURES:
        near = nearest(figure, FIGURES)
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(FIGURES)}"
        faults.add(entry.key, f"`{figure}` is no figure that the router reads", hint)
        return ""
    if name is None or name.blank or not name.text:
        return ""
    if _NAME.fullmatch(name.text):
        return name.text
    hint = "write the name alone, without labels or braces"
    faults.add(name, f"`{name.text}` is no metric name", hint)
    return ""
