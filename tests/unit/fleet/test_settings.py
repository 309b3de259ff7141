"""One name per setting, and unset, zero and off as three different things."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.frames import Fault
from services.fleet.settings import (
    SETTINGS,
    Address,
    EngineCommand,
    Ports,
    Resolved,
    Setting,
    SettingFaults,
    read_flags,
    resolve,
    show,
    usage,
)
from services.fleet.settings_table import PROGRAMS, SHARED, Program, settings_of
from services.fleet.settings_values import Labels, Value, read, write
from services.fleet.units import OFF, Wrong

GOOD = {
    "text": "rack-7",
    "url": "nats://10.0.0.1:4222,nats://10.0.0.2:4222",
    "path": "/etc/flotilla/x",
    "port": "9000",
    "ports": "100-200",
    "address": "[::1]:9000",
    "host": "gpu-7.example",
    "http": "https://control.example:7400",
    "duration": "7s",
    "size": "3MiB",
    "count": "3",
    "flag": "off",
    "mapping": "zone=a,rack=7",
    "engines": "llamacpp=/opt/llama-server --x 'a b'; vllm=vllm serve",
}


def a_good_text(row: Setting) -> str:
    return row.choices[0] if row.choices else GOOD[row.kind]


def owner(row: Setting) -> Program:
    owners: list[Program] = [program for program in PROGRAMS if program == row.section]
    return owners[0] if owners else "control"


def in_file(row: Setting, text: str) -> str:
    return f"[{row.section}]\n{row.key} = '''{text}'''\n"


def resolved(
    program: Program,
    file: str = "",
    environ: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> Resolved:
    made = resolve(program, file, environ or {}, flags or {})
    assert isinstance(made, Resolved), made
    return made


def faults(
    program: Program,
    file: str = "",
    environ: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> tuple[Fault, ...]:
    made = resolve(program, file, environ or {}, flags or {})
    assert isinstance(made, SettingFaults)
    return made.faults


EVERY = pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)


@EVERY
def test_one_name_serves_file_environment_and_flag(row: Setting) -> None:
    # spec: O8
    text, program = a_good_text(row), owner(row)
    by_file = resolved(program, in_file(row, text)).values[row.name]
    by_variable = resolved(program, environ={row.variable: text}).values[row.name]
    by_flag = resolved(program, flags={row.flag: text}).values[row.name]
    assert by_file[0] == by_variable[0] == by_flag[0] == read(row, text)
    assert (by_file[1], by_variable[1], by_flag[1]) == (
        "flotilla.toml:2",
        row.variable,
        f"--{row.flag}",
    )
    assert row.variable == f"FLOTILLA_{row.section}_{row.key}".upper().replace("-", "_")
    assert row.flag in (row.key, f"{row.section}-{row.key}")


@EVERY
def test_unset_zero_and_off_are_three_things(row: Setting) -> None:
    # spec: O8
    unset = read(row, row.default) if row.default else None
    zero, off = read(row, "0"), read(row, OFF)
    assert not isinstance(unset, Wrong)
    if row.kind in ("text", "path"):
        assert (zero, off) == ("0", "off")
    elif row.kind == "flag":
        assert isinstance(zero, Wrong)
        assert off is False
    else:
        assert isinstance(zero, Wrong) is not row.zero
        assert isinstance(off, Wrong) is not row.off
    told = [value for value in (unset, zero, off) if not isinstance(value, Wrong)]
    assert len({repr(value) for value in told}) == len(told)


@EVERY
def test_an_empty_value_is_neither_unset_nor_zero(row: Setting) -> None:
    # spec: O8
    assert read(row, "") == read(row, " ") == Wrong("is empty", "leave it out to have it unset")


@EVERY
def test_every_value_is_shown_as_it_can_be_written(row: Setting) -> None:
    for text in (a_good_text(row), row.default):
        value = read(row, text) if text else Wrong("")
        if not isinstance(value, Wrong):
            assert read(row, write(row, value)) == value


@EVERY
def test_says_what_unset_means(row: Setting) -> None:
    assert row.default is not None or "unset: " in row.help


def test_names_are_one_of_a_kind() -> None:
    assert len({row.name for row in SETTINGS}) == len(SETTINGS)
    assert len({row.variable for row in SETTINGS}) == len(SETTINGS)
    for program in PROGRAMS:
        mine = [row for row in SETTINGS if row.section in (program, *SHARED)]
        flags = [name for row in mine for name in (row.flag, row.short) if name]
        assert len(set(flags)) == len(flags)


def test_flag_wins_over_environment_over_file_over_default() -> None:
    # spec: O8
    file, environ = '[control]\ntick = "2s"\n', {"FLOTILLA_CONTROL_TICK": "3s"}
    assert [
        made.duration("control.tick")
        for made in (
            resolved("control"),
            resolved("control", file),
            resolved("control", file, environ),
            resolved("control", file, environ, {"tick": "4s"}),
        )
    ] == [1.0, 2.0, 3.0, 4.0]


def test_each_kind_has_its_reader() -> None:
    file = """
[data]
dir = "/var/lib/flotilla"
[agent]
cores = 4
memory = "8GiB"
survive = false
ports = "100-200"
labels = {zone = "a", "rack/row" = "7"}
[agent.engines.llamacpp]
command = "python -m x 'a b'"
[agent.engines.fast]
kind = "vllm"
command = "/opt/fast/bin/vllm"
version = "0.32"
"""
    made = resolved("agent", file)
    assert made.text("data.dir") == "/var/lib/flotilla"
    assert made.address("agent.listen") == Address("127.0.0.1", 7402)
    assert (made.count("agent.cores"), made.size("agent.memory")) == (4, 8 << 30)
    assert made.flag("agent.survive") is False
    assert made.ports("agent.ports") == Ports(100, 200)
    assert made.mapping("agent.labels") == {"zone": "a", "rack/row": "7"}
    assert made.engines("agent.engines") == {
        "llamacpp": EngineCommand(
            name="llamacpp", kind="llamacpp", command=("python", "-m", "x", "a b")
        ),
        "fast": EngineCommand(
            name="fast", kind="vllm", command=("/opt/fast/bin/vllm",), version="0.32"
        ),
    }
    assert not made.has("agent.fabric")


def test_off_is_none_where_a_duration_may_be_off() -> None:
    made = resolved("router", flags={"first-byte-timeout": "off"})
    assert made.duration("router.first-byte-timeout") is None
    assert made.duration("router.idle-timeout") == 60.0


def test_asking_for_another_kind_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match=r"control\.tick is no str"):
        resolved("control").text("control.tick")
    with pytest.raises(KeyError):
        resolved("agent").text("agent.fabric")


@pytest.mark.parametrize("program", ["agent", "control"])
def test_others_are_told_the_host_that_is_listened_on_unless_another_is_named(
    program: Program,
) -> None:
    name = f"{program}.address"
    flags = {"listen": "[fd00::7]:7500"}
    assert resolved(program, flags=flags).advertised(name).text == "[fd00::7]:7500"
    flags |= {"address": "gpu-7"}
    assert resolved(program, flags=flags).advertised(name).text == "gpu-7:7500"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
@pytest.mark.parametrize("program", ["agent", "control"])
def test_every_address_of_the_machine_is_none_that_others_can_be_told(
    program: Program, host: str
) -> None:
    # spec: O8, R4
    flags = {"listen": f"{host}:7500"}
    (fault,) = faults(program, flags=flags)
    assert (fault.file, fault.path) == ("--listen", f"{program}.address")
    assert fault.hint.startswith(f"set `{program}.address`")
    made = resolved(program, flags=flags | {"address": "fd00::7"})
    assert made.advertised(f"{program}.address").text == "[fd00::7]:7500"


def test_data_is_a_short_word_for_data_dir() -> None:
    assert resolved("up", flags={"data": "/d"}).text("data.dir") == "/d"


UNKNOWN_IN_FILE = [
    ("[router]\nlistn = 'x'\n", 2, "router.listn", "did you mean `listen`?"),
    ("[router]\nfirst_byte_timeout = '1s'\n", 2, "router.first_byte_timeout", "-byte-"),
    ("[router]\ntick = '1s'\n", 2, "router.tick", "it belongs under [control]"),
    ("[router]\nzzz = 1\n", 2, "router.zzz", "[router] knows name, listen"),
    ("[routr]\nlisten = 'x'\n", 1, "routr", "did you mean `router`?"),
    ("[xyz]\n", 1, "xyz", "there are nats, data, log, control"),
    ("tick = '1s'\n", 1, "tick", "it belongs under [control]"),
    ("listen = '1s'\n", 1, "listen", "[control] or [router] or [agent]"),
    ("control = 1\n", 1, "control", "write `[control]`"),
    ("# x\n[up]\nport = 1\n\n[agent]\nengine = 1\n", 6, "agent.engine", "`engines`"),
]


@pytest.mark.parametrize(("text", "line", "path", "hint"), UNKNOWN_IN_FILE)
def test_an_unknown_setting_in_the_file_is_told_with_line_and_nearest(
    text: str, line: int, path: str, hint: str
) -> None:
    # spec: O8
    (fault,) = faults("control", text)
    assert (fault.file, fault.line, fault.path) == ("flotilla.toml", line, path)
    assert hint in fault.hint


WRONG_IN_FILE = [
    ("control", "tick = 1\n", "control.tick", "has no unit"),
    ("control", "tick = 'off'\n", "control.tick", "cannot be off"),
    ("control", "tick = 0\n", "control.tick", "cannot be 0"),
    ("control", "tick = false\n", "control.tick", "true or false where it cannot be"),
    ("control", "tick = [1]\n", "control.tick", "no kind that it can be"),
    ("control", "tick = 1.5\n", "control.tick", "no kind that it can be"),
    ("control", 'name = "a\\u0007"\n', "control.name", "control character"),
    ("router", "idle-timeout = 0\n", "router.idle-timeout", "cannot be 0"),
    ("router", "max-body = 'off'\n", "router.max-body", "cannot be off"),
    ("router", "max-body = 0\n", "router.max-body", "cannot be 0"),
    ("router", "listen = '8000'\n", "router.listen", "is no address"),
    ("router", "listen = ':8000'\n", "router.listen", "is no address"),
    ("router", "listen = '::1:8000'\n", "router.listen", "is no address"),
    ("router", "listen = '127.0.0.1:0'\n", "router.listen", "is no address"),
    ("router", "listen = '127.0.0.1:65536'\n", "router.listen", "is no address"),
    ("router", "control-plane = 'maybe'\n", "router.control-plane", "neither on nor off"),
    ("agent", "labels = '-=1'\n", "agent.labels", "no name of a label"),
    ("agent", "ports = '9-8'\n", "agent.ports", "is no range of ports"),
    ("agent", "cores = -1\n", "agent.cores", "is not a whole number"),
    ("agent", "labels = 'zone'\n", "agent.labels", "names no values"),
    ("agent", "labels = 'a=1,a=2'\n", "agent.labels", "`a` is there twice"),
    ("agent", "labels = {a = 1}\n", "agent.labels", "no text"),
    ("agent", "engines = 'x'\n", "agent.engines", "names no commands"),
    ("agent", "engines = {vllm = 'x'}\n", "agent.engines", "`vllm` is no table"),
    ("agent", "engines.vllm = {}\n", "agent.engines", "`vllm` has no command"),
    ("agent", "engines.fast.command = 'x'\n", "agent.engines", "`fast` is of no known kind"),
    ("agent", "engines.vllm = {cmd = 'x'}\n", "agent.engines", "unknown key `cmd`"),
    ("agent", 'engines.vllm.command = "a \'b"\n', "agent.engines", "cannot be split"),
    ("agent", "address = '0.0.0.0'\n", "agent.address", "no host that others could reach"),
    ("agent", "address = 'h:80'\n", "agent.address", "no host that others could reach"),
    ("up", "port = 0\n", "up.port", "is no port"),
    ("up", "port = 65536\n", "up.port", "is no port"),
]


@pytest.mark.parametrize(("program", "line", "path", "message"), WRONG_IN_FILE)
def test_a_wrong_value_in_the_file_is_told_with_its_line(
    program: Program, line: str, path: str, message: str
) -> None:
    # spec: O8
    (fault,) = faults(program, f"[{program}]\n{line}")
    assert (fault.file, fault.line, fault.path) == ("flotilla.toml", 2, path)
    assert message in fault.message


def test_a_file_that_is_no_toml_is_told_with_its_place() -> None:
    (fault,) = faults("control", "[control]\ntick = \n")
    assert (fault.line, fault.column, fault.file) == (2, 8, "flotilla.toml")
    assert fault.message.startswith("this is no TOML: ")


def test_unknown_and_wrong_variables_and_flags_are_told_by_name() -> None:
    # spec: O8
    told = faults(
        "router",
        environ={"FLOTILLA_ROUTER_LISTN": "x", "FLOTILLA_ROUTER_MAX_BODY": "0", "HOME": "/root"},
        flags={"lisen": "x", "tick": "1s", "nats-url": "http://h:1", "idle-timeout": "x"},
    )
    assert [(f.file, f.path, f.hint) for f in told] == [
        ("FLOTILLA_ROUTER_LISTN", "", "did you mean `FLOTILLA_ROUTER_LISTEN`?"),
        ("FLOTILLA_ROUTER_MAX_BODY", "router.max-body", "write for example `64MiB`"),
        ("--lisen", "", "did you mean `--listen`?"),
        ("--tick", "", "it is a flag of control"),
        ("--nats-url", "nats.url", "write `nats://HOST:PORT`"),
        ("--idle-timeout", "router.idle-timeout", "write for example `90s`, `15m`, `2h` or `off`"),
    ]


def test_variables_of_other_programs_and_of_the_command_line_may_stand_beside() -> None:
    environ = {
        "FLOTILLA_CONTROL_TICK": "no duration, but control's own matter",
        "FLOTILLA_OPERATOR_TOKEN_FILE": "x",
        "FLOTILLA_CONFIG": "x",
        "FLOTILLA_SECRET_HF_TOKEN": "x",
    }
    assert resolved("router", environ=environ)


@pytest.mark.parametrize("url", ["nats://h", "nats://h:99999", "nats://[::1", "h:4222", "nats://"])
def test_a_server_has_scheme_host_and_port(url: str) -> None:
    (fault,) = faults("control", flags={"nats-url": f"nats://a:1,{url}"})
    assert fault.message == f"`nats.url`: `{url}` is no address of a server"


def test_a_count_is_0_only_where_that_means_something() -> None:
    row = Setting(name="x.y", kind="count", help="")
    assert read(row, "0") == Wrong("cannot be 0", "1 or more")
    assert read(row, "1") == 1


def test_a_password_has_no_place_in_a_setting() -> None:
    (fault,) = faults("control", flags={"nats-url": "nats://me:secret@h:4222"})
    assert fault.message == "`nats.url`: holds a password"
    assert "secret" not in repr(fault)


def test_shows_each_value_and_where_it_came_from() -> None:
    # spec: O8
    made = resolved("control", '[log]\n\nlevel = "debug"\n', {"FLOTILLA_CONTROL_TICK": "2s"})
    assert [(row.name, row.value, row.source) for row in show(made)] == [
        ("nats.url", "nats://127.0.0.1:4222", "default"),
        ("nats.user", "", "unset"),
        ("nats.password-file", "", "unset"),
        ("nats.ca", "", "unset"),
        ("nats.cert", "", "unset"),
        ("nats.key", "", "unset"),
        ("data.dir", ".flotilla", "default"),
        ("log.level", "debug", "flotilla.toml:3"),
        ("control.name", "", "unset"),
        ("control.listen", "127.0.0.1:7400", "default"),
        ("control.address", "", "unset"),
        ("control.tokens", "", "unset"),
        ("control.tick", "2s", "FLOTILLA_CONTROL_TICK"),
        ("control.unreachable-after", "5s", "default"),
        ("control.nats-monitor", "", "unset"),
        ("control.log-replicas", "", "unset"),
    ]


def test_reads_flags_in_both_spellings() -> None:
    assert read_flags(["--tick", "2s", "--listen=h:1", "--name", "--x"]) == {
        "tick": "2s",
        "listen": "h:1",
        "name": "--x",
    }


def test_tells_every_word_that_is_no_flag() -> None:
    made = read_flags(["tick", "--", "--a=1", "--a=2", "--b"])
    assert isinstance(made, SettingFaults)
    assert [(f.file, f.message) for f in made.faults] == [
        ("tick", "this is no flag"),
        ("--", "this is no flag"),
        ("--a", "is there twice"),
        ("--b", "has no value"),
    ]


def test_help_names_every_flag() -> None:
    for program in PROGRAMS:
        told = usage(program)
        mine = list(settings_of(program))
        assert all(f"--{row.flag} " in told and row.help in told for row in mine)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_makes_a_reader_fail(text: str) -> None:
    for row in SETTINGS:
        read(row, text)
    for program in PROGRAMS:
        resolve(program, text, {"FLOTILLA_X": text}, {"x": text})


NAMES = st.text(string.ascii_letters + string.digits, min_size=1, max_size=5)


@given(st.dictionaries(NAMES, NAMES, min_size=1, max_size=4))
def test_labels_are_written_as_they_are_read(labels: dict[str, str]) -> None:
    row = next(row for row in SETTINGS if row.kind == "mapping")
    value: Value = Labels(labels)
    assert read(row, write(row, value)) == value
