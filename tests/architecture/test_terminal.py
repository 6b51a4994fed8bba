"""One module writes to a terminal: another would have to think of what others wrote."""

from __future__ import annotations

import ast
from pathlib import Path

from project.source_files import text_of

ROOT = Path(__file__).parents[2] / "connector" / "keyrange"
WRITERS = {
    # The one.
    "cli/render.py",
    # A page of HTML to a pipe, whose texts are escaped for it.
    "cli/report/commands.py",
    # Handlers whose formatters make lines plain.
    "observing/logs.py",
}
PYTHON = sorted(path for path in ROOT.rglob("*.py"))
# A module without any of these has no way to write: it need not be parsed.
SIGNS = ("print", "echo", "stdout", "stderr", "rich")
OTHERS = [path for path in PYTHON if path.relative_to(ROOT).as_posix() not in WRITERS]


def writes(tree: ast.AST) -> list[str]:
    """Each way in which a module would write to a terminal by itself."""
    found = []
    # What only types need is imported there.
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {
            "print",
            "typer.echo",
            "typer.secho",
            "click.echo",
            "click.secho",
        }:
            found.append(ast.unparse(node.func))
        if text.startswith(("sys.stdout.", "sys.stderr.")) and text.endswith(
            (".write", ".writelines", ".buffer")
        ):
            found.append(text)
        if isinstance(node, ast.ImportFrom) and node.module in ("rich", "rich.console"):
            found += [each.name for each in node.names if each.name in ("Console", "print")]
    return found


def test_there_is_something_to_check() -> None:
    assert {path.relative_to(ROOT).as_posix() for path in PYTHON} >= WRITERS
    assert len(OTHERS) > 200
    assert writes(ast.parse("from rich.console import Console\nprint(1)\nsys.stdout.write('')"))
    assert "print" in writes(ast.parse(text_of(ROOT / "cli" / "render.py")))


def test_nothing_else_writes_to_a_terminal() -> None:
    looked_at = [path for path in OTHERS if any(sign in text_of(path) for sign in SIGNS)]
    found = {
        path.relative_to(ROOT).as_posix(): writes(ast.parse(text_of(path))) for path in looked_at
    }
    assert {file: ways for file, ways in found.items() if ways} == {}
