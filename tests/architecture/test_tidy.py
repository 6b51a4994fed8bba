"""The habits of this repository, held by a test: sizes, docstrings, what no file may hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from keyrange.model.value_forms import FORMATS
from project.source_files import ROOT, imported, module_of, parsed, text_of

FOLDERS = ("connector", "jobs", "conf", "ci", "tests")
PYTHON = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SOURCES = [path for path in PYTHON if path.is_relative_to(ROOT / "connector")]
TEXTS = sorted(
    path
    for folder in FOLDERS
    for path in [*(ROOT / folder).rglob("*"), *ROOT.glob("*")]
    if path.is_file()
    and path.suffix in {"", ".py", ".md", ".toml", ".sh", ".txt", ".json", ".conf"}
    if "__pycache__" not in path.parts and not path.name.startswith(".")
)
TEXTS = sorted(set(TEXTS))

FILE_LINES_MAX = 400
# Larger, with the reason.
LARGE_FILES = {
    # Numba invalidates its cache by the kernel's own file: a helper elsewhere could change unseen.
    "connector/keyrange/wire/record_kernels.py": 850,
    "connector/keyrange/formats/protobuf/kernels.py": 450,
}
FUNCTION_LINES_MAX = 70
LINE_CHARACTERS_MAX = 100

# Modules that nothing imports, because something else starts them.
ENTRY_POINTS = {
    "keyrange.__main__",
    "keyrange.cli.main",
    "keyrange.testing",
    *(f"keyrange.formats.{name}.format" for name in FORMATS),
    "keyrange.volumes",
    "pyspark_keyrange",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 20
    assert {name(path) for path in PYTHON} >= {"tests/samples/strategies.py", *LARGE_FILES}


def test_nothing_stands_beside_the_folders() -> None:
    """Neither what somebody added nor what a test wrote where it ran."""
    ignored = {line.strip().rstrip("/") for line in text_of(ROOT / ".gitignore").splitlines()}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert {each for each in folders - ignored if not each.startswith(".")} == set(FOLDERS)


def test_what_tests_share_is_in_packages() -> None:
    assert [path.name for path in (ROOT / "tests").glob("*.py")] == ["conftest.py"]


def test_files_stay_small() -> None:
    lines = {name(path): len(text_of(path).splitlines()) for path in PYTHON}
    long = {file: n for file, n in lines.items() if n >= LARGE_FILES.get(file, FILE_LINES_MAX)}
    assert long == {}


def test_a_module_says_what_it_is() -> None:
    with_text = [path for path in PYTHON if text_of(path).strip()]
    assert [name(path) for path in with_text if not ast.get_docstring(parsed(path))] == []


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Wherever a statement may stand. Expressions, most of what a file is made of, hold none."""
    left: list[ast.AST] = [parsed(path)]
    while left:
        node = left.pop()
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, block, [])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_fit_on_a_page() -> None:
    """Kernels are left out: a compiled pass is one function, its state stays in registers."""
    lines = {
        f"{name(path)}:{node.lineno}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in PYTHON
        if path.name != "record_kernels.py"
        for node in functions(path)
    }
    assert {where: n for where, n in lines.items() if n > FUNCTION_LINES_MAX} == {}


def test_lines_fit_beside_each_other() -> None:
    long = [
        f"{name(path)}:{number}"
        for path in PYTHON
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if len(line) > LINE_CHARACTERS_MAX
    ]
    assert long == []


# Pieces, so that this file does not find itself.
MACHINE_PATHS = ["/" + "work/", "/" + "root/", "/" + "home/", "/tmp/" + "dev", "/" + "Users/"]
REGISTRIES = ["pypi" + ".org", "python" + "hosted.org", "repo1" + ".maven", "maven" + ".org/maven2"]
REGISTRIES += ["registry." + "npmjs", "crates" + ".io", "conda." + "anaconda", "--index" + "-url"]


def test_no_path_of_a_machine_and_no_package_host() -> None:
    words = (*MACHINE_PATHS, *REGISTRIES)
    found = {name(path): [word for word in words if word in text_of(path)] for path in TEXTS}
    assert {file: those for file, those in found.items() if those} == {}


def test_no_banners() -> None:
    banner = re.compile(r"^\s*#\s*([-=*#~])\1{4,}", re.M)
    assert [name(path) for path in PYTHON if banner.search(text_of(path))] == []


def test_no_module_is_forgotten() -> None:
    """Every module is imported by another one, started by name, or an entry point."""
    modules = {
        module_of(path): path
        for path in SOURCES
        if path.name != "__init__.py" or len(parsed(path).body) > 1
    }
    used = ENTRY_POINTS | {"keyrange"}
    for path in [*SOURCES, *(ROOT / "jobs").rglob("*.py")]:
        module = module_of(path) if path in SOURCES else ""
        used |= {each for each in imported(path) if each != module}
    assert set(modules) - used == set()
    assert modules.keys() >= ENTRY_POINTS


CLOCKS_AND_CHANCE = {"time", "datetime", "random", "secrets", "uuid"}


def test_models_and_wire_read_no_clock_and_roll_no_dice() -> None:
    pure = [path for path in SOURCES if {"model", "wire"} & set(module_of(path).split("."))]
    assert len(pure) > 80
    roots = {name(path): {module.split(".")[0] for module in imported(path)} for path in pure}
    found = {file: sorted(those & CLOCKS_AND_CHANCE) for file, those in roots.items()}
    assert {file: those for file, those in found.items() if those} == {}
    assert [name(path) for path in pure if "np.random" in text_of(path)] == []


def unsafe_starts(text: str) -> list[int]:
    """The lines that name this Python other than as the head of a command that leaves the
    directory it runs in out of its path."""
    tree, safe = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1:
            head, option = node.elts[:2]
            if isinstance(option, ast.Constant) and option.value in ("-P", "-I"):
                safe.add(head)
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "executable" and node not in safe
    ]


def test_what_starts_a_python_runs_nothing_of_the_working_directory() -> None:
    """A folder with the name of a package would be imported in its place."""
    assert unsafe_starts("[sys.executable, '-m', 'x']\nrun([sys.executable, '-P', 'x'])") == [1]
    found = {name(path): unsafe_starts(text_of(path)) for path in SOURCES}
    assert {file: lines for file, lines in found.items() if lines} == {}
