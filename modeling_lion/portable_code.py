# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Generates the code that is saved beside weights: three files, made from this package, that load without it.

With `trust_remote_code=True` transformers copies files of one folder and follows only `from .x import y`. So the
modules of a group are joined into one file, in the order of their imports, with comments and docstrings:

    configuration_lion.py   configuration and tokenizer
    modeling_lion.py        everything else
    triton_lion.py          what imports triton; modeling_lion.py imports it with the first CUDA tensor

Imports within a group are dropped, and imports of another group are changed to its file. Imports inside functions stay
where they are, so that they stay lazy.
"""

import ast
import os
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import tokenization_lion


PACKAGES = {"modeling_lion": Path(__file__).parent, "tokenization_lion": Path(tokenization_lion.__file__).parent}
# Modules of another package that are shipped, and their groups.
TOKENIZATION = {
    "tokenization_lion.tokenization_lion": "configuration_lion",
    "tokenization_lion.image_processing_grayscale": "modeling_lion",
}
# Modules that LION's weights do not need.
NOT_SHIPPED = (
    "modeling_lion.in_transformers.linearize",
    "modeling_lion.layout.passages",
    "modeling_lion.portable_code",
)
CONFIGURATION = ("modeling_lion.configuration_lion", "modeling_lion.private_apis")
GROUPS = ("configuration_lion", "modeling_lion", "triton_lion")
LICENCE = "# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.\n"
HEADER = (
    LICENCE
    + """# Generated from the package lion-transformers {version}, module by module: change it there, not here.
"""
)


class Module:
    """A module of the package: its source and its imports."""

    def __init__(self, name: str, path: Path):
        self.name, self.path = name, path
        self.source = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.source)

    def module_of(self, node: ast.ImportFrom) -> str:
        """The dotted name of the module that a relative import reads."""
        parent = self.name.split(".")[: -node.level]
        return ".".join([*parent, node.module])

    def relative_imports(self, nodes: list[ast.AST] | None = None) -> Iterator[ast.ImportFrom]:
        """All relative imports, or those among `nodes`, such as the statements at the top level."""
        for node in ast.walk(self.tree) if nodes is None else nodes:
            if isinstance(node, ast.ImportFrom) and node.level:
                yield node

    def needs(self) -> list[str]:
        """The modules that have to be defined before this one."""
        return [self.module_of(node) for node in self.relative_imports(self.tree.body)]

    def needs_triton(self) -> bool:
        imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import)]
        return any(alias.name.split(".")[0] == "triton" for node in imports for alias in node.names)


def shipped_modules() -> dict[str, tuple[Module, str]]:
    """The shipped modules and their groups, by dotted name."""
    modules = {}
    own = PACKAGES["modeling_lion"]
    for path in sorted(own.rglob("*.py")):
        name = ".".join(("modeling_lion", *path.relative_to(own).with_suffix("").parts))
        if path.name != "__init__.py" and name not in NOT_SHIPPED:
            modules[name] = Module(name, path)
    for name in TOKENIZATION:
        package, file = name.split(".")
        modules[name] = Module(name, PACKAGES[package] / f"{file}.py")
    lazy = {name for name, module in modules.items() if module.needs_triton()}
    while more := {name for name, module in modules.items() if set(module.needs()) & lazy} - lazy:
        lazy |= more
    group = {name: "triton_lion" if name in lazy else "modeling_lion" for name in modules}
    group |= dict.fromkeys(CONFIGURATION, "configuration_lion") | TOKENIZATION
    return {name: (module, group[name]) for name, module in modules.items()}


@lru_cache
def portable_code() -> dict[str, str]:
    """
    The generated files by name; deterministic.

    Raises:
        ValueError: if modules of a group define a name twice, or import in a way that cannot be joined.
    """
    modules = shipped_modules()
    return {f"{group}.py": joined(group, modules) for group in GROUPS}


def joined(group: str, modules: dict[str, tuple[Module, str]]) -> str:
    """The text of the file of a group."""
    order, seen = [], set()

    def visit(name: str) -> None:
        if name in seen or modules[name][1] != group:
            return
        seen.add(name)
        module = modules[name][0]
        for needed in module.needs():
            visit(needed)
        order.append(module)

    for name in sorted(modules):
        visit(name)
    imports, others, bodies, defined = {}, {}, [], {}
    for module in order:
        bodies.append(body_of(module, group, modules, imports, others, defined))
    others = {f".{other}": names for other, names in others.items()}
    head = [*map(import_statement, sorted(imports.items())), "", *map(import_statement, sorted(others.items()))]
    return HEADER.format(version=version("lion-transformers")) + "\n".join([*head, *bodies])


def import_statement(names_of_origin: tuple[str, set[str]]) -> str:
    """The import statement for names from one origin; the origin of modules themselves is ""."""
    origin, names = names_of_origin
    if not origin:
        return "\n".join(f"import {name}" for name in sorted(names))
    statement = f"from {origin} import {', '.join(sorted(names))}"
    if len(statement) <= 119:
        return statement
    return "\n".join([f"from {origin} import (", *(f"    {name}," for name in sorted(names)), ")"])


def body_of(module: Module, group: str, modules: dict, imports: dict, others: dict, defined: dict) -> str:
    """
    The source of a module without its imports, which are added to `imports` (names by origin) and `others` (names by
    group). `defined` maps the names of the group so far to the statements that define them.
    """
    lines = module.source.splitlines()
    replaced: dict[int, str | None] = {}

    def replace(node: ast.AST, line: str | None) -> None:
        replaced.update(dict.fromkeys(range(node.lineno, node.end_lineno + 1)))
        replaced[node.lineno] = line

    def define(name: str, statement: str) -> None:
        if defined.setdefault(name, statement) != statement:
            raise ValueError(f"{name} is defined twice in {group}.py: in {module.path} it needs another name.")

    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            check_import(module, node, modules)
            target = modules[module.module_of(node)][1]
            if target != group:
                others.setdefault(target, set()).update(alias.name for alias in node.names)
            replace(node, None)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                what = alias.name + (f" as {alias.asname}" if alias.asname else "")
                origin = node.module if isinstance(node, ast.ImportFrom) else ""
                imports.setdefault(origin, set()).add(what)
                define(alias.asname or alias.name, f"{origin} {what}")
            replace(node, None)
        else:
            statement = ast.get_source_segment(module.source, node)
            names = names_of(node)
            if names and all(defined.get(name) == statement for name in names):
                replace(node, None)  # the same statement again, such as a logger
            for name in names:
                define(name, statement)
    top_level = {id(node) for node in module.tree.body}
    for node in module.relative_imports():
        if id(node) not in top_level:  # inside a function: stays lazy
            check_import(module, node, modules)
            target = modules[module.module_of(node)][1]
            if target == group:
                raise ValueError(f"{module.path}:{node.lineno} imports from its own group inside a function.")
            names = ", ".join(alias.name for alias in node.names)
            replace(node, " " * node.col_offset + f"from .{target} import {names}")
    kept = [replaced.get(number, line) for number, line in enumerate(lines, 1)]
    text = "\n".join(line for line in kept if line is not None).removeprefix(LICENCE)
    return f"\n\n# {'/'.join(module.name.split('.'))}.py\n{text.strip()}\n"


def check_import(module: Module, node: ast.ImportFrom, modules: dict) -> None:
    """Raise a ValueError for a relative import that cannot be joined into one file."""
    if node.module is None or module.module_of(node) not in modules or any(alias.asname for alias in node.names):
        raise ValueError(f"{module.path}:{node.lineno}: write `from .module import name`, without `as`.")


def names_of(node: ast.stmt) -> list[str]:
    """The names that a statement at the top level defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = (
        node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    )
    return [x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)]


def write_portable_code(folder: str | os.PathLike) -> None:
    """Write the generated files into a folder, each one atomically."""
    os.makedirs(folder, exist_ok=True)
    for name, text in portable_code().items():
        with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, Path(folder, name))
