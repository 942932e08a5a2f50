"""The rules of ARCHITECTURE.md that a machine can check, checked."""

import ast
import functools
import importlib
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted(
    path for pattern in ("libs/*", "services/*", "ops") for path in ROOT.glob(f"{pattern}/pyproject.toml")
)
MODULES = sorted(path for manifest in MANIFESTS for path in (manifest.parent / "src").rglob("*.py"))
SHORT = {"tieline": "client"}  # the others drop their prefix: tieline_gateway -> gateway

IO_MODULES = {
    *(
        "asyncio",
        "socket",
        "ssl",
        "select",
        "selectors",
        "subprocess",
        "threading",
        "multiprocessing",
        "signal",
    ),
    *("concurrent", "fcntl", "http", "os", "pty", "queue", "shutil", "tempfile", "termios", "urllib", "mmap"),
    *(
        "nats",
        "httpx",
        "websockets",
        "picows",
        "uvicorn",
        "uvloop",
        "watchfiles",
        "starlette",
        "acp",
        "psutil",
    ),
    *("time", "random", "secrets", "uuid"),  # time, chance and ids are arguments
}
PURE_PARTS = {"os.path", "urllib.parse"}
SUBJECT = re.compile(r"tieline\.(event|command|rpc|connection|call|changed)\b|\$(JS|KV|SRV)\b")


def name(path: Path) -> str:
    """tieline_gateway.lanes, say."""
    parts = path.relative_to(next(p for p in path.parents if p.name == "src")).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@functools.cache
def imports(path: Path) -> list[str]:
    """Full names of all that a module imports, inside functions too; `from a import b` counts as a.b."""
    found: list[str] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def is_pure(path: Path) -> bool:
    return (
        path.read_text().lstrip("r").startswith('"""Pure:')
    )  # asked while tests are collected, in every worker


OURS = {name(path) for path in MODULES if path.name != "__init__.py"}
PURE = [path for path in MODULES if is_pure(path)]


def plain(distribution: str) -> str:
    """Its name in the one spelling of the package index."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def dependencies(manifest: Path) -> set[str]:
    """Names of the distributions that a manifest asks for, and what those of ours ask for in turn."""
    told = tomllib.loads(manifest.read_text())["project"]
    extras = told.get("optional-dependencies", {})
    asked = [*told.get("dependencies", []), *(item for extra in extras.values() for item in extra)]
    found = {plain(re.split(r"[^A-Za-z0-9_.-]", item)[0]) for item in asked}
    for other in MANIFESTS:
        if tomllib.loads(other.read_text())["project"]["name"] in found:
            found |= dependencies(other)
    return found


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_a_package_imports_only_what_its_manifest_asks_for(manifest: Path) -> None:
    providers = dict(importlib.metadata.packages_distributions())
    for other in MANIFESTS:
        package = next((other.parent / "src").iterdir()).name
        providers[package] = [tomllib.loads(other.read_text())["project"]["name"]]
    allowed = dependencies(manifest)
    wrong = {
        f"{name(path)} imports {module}"
        for path in (manifest.parent / "src").rglob("*.py")
        for module in imports(path)
        if (top := module.partition(".")[0]) not in sys.stdlib_module_names
        and top != name(path).partition(".")[0]
        and not {plain(dist) for dist in providers.get(top, [])} & allowed
    }

    assert not wrong


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.parent.name)
def test_services_never_import_each_other_and_libraries_import_no_service(manifest: Path) -> None:
    own = next((manifest.parent / "src").iterdir()).name
    may = {own, "tieline_protocol"} if own not in ("tieline", "tieline_agentctl") else {own}
    if own == "tieline_ops":  # it starts services as processes and uses the client; it reaches into none
        may |= {"tieline"}
    found = {
        module.partition(".")[0]
        for path in (manifest.parent / "src").rglob("*.py")
        for module in imports(path)
        if module.startswith("tieline")
    }

    assert found <= may


@pytest.mark.parametrize("path", PURE, ids=name)
def test_a_module_that_says_pure_is_pure(path: Path) -> None:
    nodes = list(ast.walk(tree(path)))
    waits = [
        node
        for node in nodes
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    opens = [
        node
        for node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("open", "print")
    ]
    wrong = {
        module
        for module in imports(path)
        if module.partition(".")[0] in IO_MODULES and ".".join(module.split(".")[:2]) not in PURE_PARTS
    }

    assert not waits
    assert not opens
    assert not wrong
    assert "pathlib.Path" not in set(imports(path)), "PurePath is for paths that are not looked at"


@pytest.mark.parametrize("path", PURE, ids=name)
def test_a_pure_module_imports_no_module_of_ours_that_is_not(path: Path) -> None:
    pure = {name(one) for one in PURE}
    packages = {name(one) for one in MODULES if one.name == "__init__.py"}
    ours = {name(one) for one in MODULES} - packages
    used = {
        found for module in imports(path) for found in (module, module.rpartition(".")[0]) if found in ours
    }

    assert used <= pure


@pytest.mark.parametrize("path", PURE, ids=name)
def test_a_pure_module_has_its_own_test_file(path: Path) -> None:
    package, *parts = name(path).split(".")
    short = SHORT.get(package, package.removeprefix("tieline_"))

    assert (ROOT / "tests/unit" / short / f"test_{parts[-1]}.py").exists()


def test_only_the_bus_imports_nats() -> None:
    users = {name(path) for path in MODULES for module in imports(path) if module.partition(".")[0] == "nats"}

    assert users == {f"tieline_protocol.{name}" for name in ("bus", "nats_client", "subscription")}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_task_is_fired_and_forgotten(path: Path) -> None:
    """B18: a task that nobody holds can vanish under way, and its error with it."""
    wrong = [
        f"line {node.lineno}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr)
        and isinstance(call := node.value, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and (
            call.func.attr == "ensure_future"
            or (call.func.attr == "create_task" and "group" not in ast.unparse(call.func.value).lower())
        )
    ]

    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_task_has_a_name(path: Path) -> None:
    wrong = [
        f"line {node.lineno}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "create_task"
        and "name" not in {keyword.arg for keyword in node.keywords}
    ]

    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_subjects_are_written_in_one_place(path: Path) -> None:
    if name(path) == "tieline_protocol.subjects":
        return
    module = tree(path)
    documents = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    wrong = [
        f"line {node.lineno}: {node.value!r:.60}"
        for node in ast.walk(module)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documents
        and SUBJECT.search(node.value)
    ]

    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree(path)), "a docstring says what lives here and what may not"


def seed_names() -> list[tuple[str, str]]:
    """Rows `| seed's name | ... | symbol |` of the table in ARCHITECTURE.md: (name, module:attribute)."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## Names of the seed documents")[2].partition("\n## ")[0]
    return [
        (row[0].strip("` "), symbol.strip("` "))
        for line in section.splitlines()
        if line.startswith("| `") and len(row := line.strip("| ").split("|")) >= 2
        for symbol in row[1].split(",")
    ]


def test_the_table_of_seed_names_is_there() -> None:
    assert len(seed_names()) >= 20


@pytest.mark.parametrize(("seed", "symbol"), seed_names())
def test_each_seed_name_leads_to_a_symbol_that_exists(seed: str, symbol: str) -> None:
    module, _, attributes = symbol.partition(":")
    value: object = importlib.import_module(module)
    for attribute in attributes.split(".") if attributes else []:
        value = getattr(value, attribute)
