from pathlib import Path

import pytest

from ctl.demo import check_model, demo_catalog
from ctl.failure import Exit, Failure
from services.fleet.catalog import Catalog, from_yaml


def test_a_file_becomes_a_catalog_whatever_it_is_called(tmp_path: Path) -> None:
    file = tmp_path / "my model: 'v1'.Q4.gguf"
    file.write_bytes(b"GGUF....")
    check_model(file)
    text, name = demo_catalog(file)
    made = from_yaml(text)
    assert isinstance(made, Catalog), made
    assert list(made.models) == [name] == ["my-model---v1-.Q4"]
    assert [model.profile.source for model in made.models.values()] == [str(file)]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04"])
def test_what_is_no_gguf_is_refused_before_anything_starts(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "x.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Failure) as raised:
        check_model(file)
    assert raised.value.exit_code == Exit.USAGE
    assert str(file) in raised.value.message


def test_the_demos_weights_are_found_without_importing_their_package() -> None:
    text, name = demo_catalog(None)
    made = from_yaml(text)
    assert isinstance(made, Catalog), made
    source = Path(next(iter(made.models.values())).profile.source)
    assert (name, source.suffix, source.is_file()) == ("smollm2", ".gguf", True)
