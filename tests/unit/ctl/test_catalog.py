import io
from pathlib import Path

import pytest

from ctl.failure import Exit
from ctl.main import run

CASES = Path(__file__).parents[2] / "data" / "catalogs"


def test_a_good_file_is_ok_without_any_server(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: C7
    monkeypatch.setenv("FLOTILLA_OPERATOR_SERVER", "http://127.0.0.1:9")
    assert run(["catalog", "validate", str(CASES / "design.yaml")]) == Exit.YES
    assert ": ok, " in capfd.readouterr().out


@pytest.mark.parametrize("case", ["CC-01", "CC-03", "CC-05", "HR-01-bad", "HR-01-half"])
def test_every_fault_has_line_and_column_and_the_exit_code_is_two(
    case: str, capfd: pytest.CaptureFixture[str]
) -> None:  # spec: C1, C7
    file = CASES / f"{case}.yaml"
    assert run(["catalog", "validate", str(file)]) == Exit.USAGE
    told = capfd.readouterr()
    assert told.out == ""
    faults = [line for line in told.err.splitlines() if line.startswith(str(file))]
    assert faults
    for fault in faults:
        line, column, severity = fault.removeprefix(f"{file}:").split(":")[:3]
        assert (int(line) > 0, int(column) > 0, severity) == (True, True, " error")
    assert "  hint: " in told.err
    assert told.err.splitlines()[-1].endswith("[bad_catalog]")


def test_standard_input_is_a_file_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"models: {a: {engine: llamacpp}}\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert run(["catalog", "validate", "-"]) == Exit.USAGE
    assert "<stdin>:1:" in capfd.readouterr().err


def test_a_file_that_is_not_there_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "validate", "no-such.yaml"]) == Exit.USAGE
    assert "cannot read no-such.yaml: No such file" in capfd.readouterr().err


@pytest.mark.parametrize("revision", ["seventeen", "r", "-1", "1.5"])
def test_a_revision_is_a_number_with_or_without_its_letter(
    revision: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["catalog", "apply", "-", f"--if-revision={revision}"]
    assert run(arguments) == Exit.USAGE
    assert "write 17 or r17" in capfd.readouterr().err
