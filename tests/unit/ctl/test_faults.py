from ctl.faults import fault_lines
from schemas.frames import Fault


def test_a_fault_reads_like_a_compilers_with_its_hint_below() -> None:
    fault = Fault(file="bad.yaml", line=14, column=11, message="unknown key", hint="write this")
    assert fault_lines([fault]) == ["bad.yaml:14:11: error: unknown key", "  hint: write this"]


def test_a_fault_without_a_line_is_placed_by_its_path() -> None:
    fault = Fault(path="models.a.replicas", message="not a number")
    assert fault_lines([fault]) == ["models.a.replicas: error: not a number"]


def test_a_fault_of_a_whole_file_names_the_file() -> None:
    assert fault_lines([Fault(file="bad.yaml", message="too large")]) == [
        "bad.yaml: error: too large"
    ]
