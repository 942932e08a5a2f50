"""What the documents say is so: links lead somewhere, commands exist, examples are valid and typed code."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from tieline_ops.__main__ import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            yield f"{page.name} {number}", text


PYTHON = list(blocks("python"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:libs|services|ops|tests|docs)/[\w./-]+\.\w+)`", page.read_text())

    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("name", "code"), PYTHON, ids=[name for name, _ in PYTHON])
def test_python_examples_are_valid_and_import_what_exists(name: str, code: str) -> None:
    imports: list[ast.stmt] = [
        node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    exec(compile(ast.Module(imports, []), name, "exec"), {})


def test_examples_that_are_tests_pass() -> None:
    found = 0
    for name, code in PYTHON:
        if "def test_" in code:
            space: dict[str, object] = {}
            exec(compile(code, name, "exec"), space)
            for function in [value for key, value in space.items() if key.startswith("test_")]:
                assert callable(function)
                function()
                found += 1

    assert found


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(page.read_text() for page in PAGES)

    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= targets


def commands() -> dict[str, click.Command]:
    group = typer.main.get_command(app)
    return dict(getattr(group, "commands"))  # noqa: B009  # a Group, whose type depends on typer's version


def test_commands_that_are_named_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)

    assert set(re.findall(r"`(?:\.venv/bin/)?tieline ([a-z]+)", text)) <= set(commands())


def test_every_option_of_up_is_described_and_no_other() -> None:
    options = {option for parameter in commands()["up"].params for option in parameter.opts} - {"--help"}
    table = (ROOT / "docs/running.md").read_text().partition("| option |")[2].partition("\n\n")[0]

    assert set(re.findall(r"^\| `(--[a-z-]+)", table, re.MULTILINE)) == options


def test_documents_do_not_speak_of_a_machine() -> None:
    text = "\n".join(page.read_text() for page in PAGES)

    assert not re.findall(r"/(?:work|tmp|home|root)/", text)
    assert str(Path(sys.prefix)) not in text
