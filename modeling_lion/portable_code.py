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

For a mixer or a feature map of another package, its source file is copied, and imports of this package become imports
of the generated files. config.json then names that file, so that transformers loads it first.
"""

import ast
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import tokenization_lion
from transformers.utils import logging

import configuration_lion


logger = logging.get_logger(__name__)

PACKAGES = {
    package.__name__: Path(str(package.__file__)).parent for package in (configuration_lion, tokenization_lion)
} | {"modeling_lion": Path(__file__).parent}
# Modules that saved models do not need.
NOT_SHIPPED = (
    "configuration_lion.presets",
    "modeling_lion.linearized.linearize",
    "modeling_lion.linearized.probe",
    "modeling_lion.mixers.import_mixers",
    "modeling_lion.portable_code",
    "tokenization_lion.image_processing_lion",
)
GROUPS = ("configuration_lion", "modeling_lion", "triton_lion")
LICENCE = "# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.\n"
HEADER = (
    LICENCE
    + """# Generated from the package lion-transformers {version}, module by module: change it there, not here.
"""
)
ENTRY = """

# Added where a model was saved. Its config.json names these classes as those of this file, so that the code above is
# loaded with them, and saved again.
{imports}


for saved_class in (
{names}):
    saved_class.__module__ = __name__
"""


class Module:
    """A module of the package: its source and its imports."""

    def __init__(self, name: str, path: Path):
        self.name, self.path = name, path
        self.source = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.source)

    def module_of(self, node: ast.ImportFrom) -> str:
        """The dotted name of the module that a `from` statement imports from."""
        parent = self.name.split(".")[: -node.level] if node.level else []
        return ".".join([*parent, node.module or ""])

    def own_imports(self, nodes: Iterable[ast.AST] | None = None) -> Iterator[ast.ImportFrom]:
        """The imports from this repository, in the whole module or among `nodes`."""
        for node in ast.walk(self.tree) if nodes is None else nodes:
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] in PACKAGES):
                yield node

    def needs(self) -> list[str]:
        """The modules that must come before this one in a generated file."""
        return [self.module_of(node) for node in self.own_imports(self.tree.body)]

    def needs_triton(self) -> bool:
        imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import)]
        return any(alias.name.split(".")[0] == "triton" for node in imports for alias in node.names)


def shipped_modules() -> dict[str, tuple[Module, str]]:
    """The shipped modules and their groups, by dotted name."""
    modules = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
            if path.name != "__init__.py" and name not in NOT_SHIPPED:
                modules[name] = Module(name, path)
    lazy = {name for name, module in modules.items() if module.needs_triton()}
    while more := {name for name, module in modules.items() if set(module.needs()) & lazy} - lazy:
        lazy |= more
    return {
        name: (module, "triton_lion" if name in lazy else group_of_module(name)) for name, module in modules.items()
    }


def group_of_module(name: str) -> str:
    """The group of a module that does not need triton. The tokenizer is loaded without the model."""
    with_configuration = name.startswith("configuration_lion.") or name == "tokenization_lion.tokenization_lion"
    return "configuration_lion" if with_configuration else "modeling_lion"


@lru_cache
def portable_code() -> dict[str, str]:
    """
    The generated files by name; deterministic. Raises a ValueError if modules of a group define a name twice, or
    import in a way that cannot be joined.
    """
    modules = shipped_modules()
    return {f"{group}.py": joined(group, modules) for group in GROUPS}


def joined(group: str, modules: dict[str, tuple[Module, str]]) -> str:
    """The source of the generated file of a group."""
    order: list[Module] = []
    seen: set[str] = set()

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
    imports: dict[str, set[str]] = {}
    others: dict[str, set[str]] = {}
    defined: dict[str, str] = {}
    bodies = [body_of(module, group, modules, imports, others, defined) for module in order]
    others = {f".{other}": names for other, names in others.items()}
    head = [*map(import_statement, sorted(imports.items())), "", *map(import_statement, sorted(others.items()))]
    return HEADER.format(version=version("lion-transformers")) + "\n".join([*head, *bodies])


def is_own(part: Callable) -> bool:
    """Whether a mixer or a feature map is a part of this package."""
    return part.__module__.partition(".")[0] in PACKAGES


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
    The source of a module without its imports. Adds its names from outside to `imports`, by origin, its names from
    other groups to `others`, by group, and the statements that define its own names to `defined`, by name.
    """
    lines = module.source.splitlines()
    replaced: dict[int, str | None] = {}

    def replace(node: ast.stmt, line: str | None) -> None:
        replaced.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
        replaced[node.lineno] = line

    def define(name: str, statement: str) -> None:
        if defined.setdefault(name, statement) != statement:
            raise ValueError(f"{name} is defined twice in {group}.py: in {module.path} it needs another name.")

    own = list(module.own_imports(module.tree.body))
    for node in module.tree.body:
        if node in own:
            check_import(module, node, modules)
            target = modules[module.module_of(node)][1]
            if target != group:
                others.setdefault(target, set()).update(alias.name for alias in node.names)
            replace(node, None)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                what = alias.name + (f" as {alias.asname}" if alias.asname else "")
                origin = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                imports.setdefault(origin, set()).add(what)
                define(alias.asname or alias.name, f"{origin} {what}")
            replace(node, None)
        else:
            statement = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            names = names_of(node)
            if names and all(defined.get(name) == statement for name in names):
                replace(node, None)  # the same statement again, such as a logger
            for name in names:
                define(name, statement)
    top_level = {id(node) for node in module.tree.body}
    for node in module.own_imports():
        if id(node) not in top_level:  # inside a function: stays lazy
            check_import(module, node, modules)
            target = modules[module.module_of(node)][1]
            if target == group:
                raise ValueError(f"{module.path}:{node.lineno} imports from its own group inside a function.")
            imported = ", ".join(alias.name for alias in node.names)
            replace(node, " " * node.col_offset + f"from .{target} import {imported}")
    kept = [replaced.get(number, line) for number, line in enumerate(lines, 1)]
    text = "\n".join(line for line in kept if line is not None).removeprefix(LICENCE)
    return f"\n\n# {'/'.join(module.name.split('.'))}.py\n{text.strip()}\n"


def check_import(module: Module, node: ast.ImportFrom, modules: dict) -> None:
    """Raise a ValueError for an import from these packages that cannot be joined into one file."""
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


def write_portable_code(
    folder: str | os.PathLike, parts: Iterable[Callable] = (), auto_map: dict[str, str] | None = None
) -> dict[str, str] | None:
    """
    Write the generated files into a folder, each one atomically, and the source files of those `parts`, the mixer and
    the feature map of the model, that are from other packages. Returns the `auto_map`, `"file.Class"` by Auto class,
    that also loads these.
    """
    texts = dict(portable_code())
    if others := [part for part in parts if not is_own(part)]:
        try:
            files = {Path(source_file(part)).name: Path(source_file(part)) for part in others}
            found = {name: portable_source(path) for name, path in files.items()}
        except ValueError as error:
            logger.warning_once(f"{error} What is saved loads only where this file is imported before.")
        else:
            first, *_ = found
            entry, names = Path(first).stem, {(Path(source_file(part)).name, part.__name__) for part in others}
            found[first] += entry_code(sorted(x for x in names if x[0] != first), auto_map or {})
            texts |= found
            auto_map = {name: f"{entry}.{reference.split('.')[-1]}" for name, reference in (auto_map or {}).items()}
    os.makedirs(folder, exist_ok=True)
    for name, text in texts.items():
        with tempfile.NamedTemporaryFile("w", dir=os.fspath(folder), encoding="utf-8", delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, Path(folder, name))
    return auto_map


def source_file(part: Callable) -> str:
    """The file of a mixer or a feature map of another package. Raises a ValueError if it cannot be copied."""
    root = part.__module__.partition(".")[0]
    try:
        path = inspect.getsourcefile(part)
    except (OSError, TypeError):
        path = None
    if path is None or root in ("__main__", "torch", "transformers"):
        raise ValueError(f"{part.__name__} is not saved: define it in a file of its own, and import that.")
    if not (name := Path(path).stem).isidentifier() or name in GROUPS:
        raise ValueError(f"{part.__name__} is not saved: {path} needs another name.")
    return path


def portable_source(path: Path) -> str:
    """
    The source of a file of another package, with imports of this one changed to imports of the generated files. Raises
    a ValueError if it imports something that is not in these files.
    """
    modules = shipped_modules()
    source = path.read_text(encoding="utf-8")
    lines: list[str | None] = list(source.splitlines())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in PACKAGES for alias in node.names):
            raise ValueError(f"{path}:{node.lineno} is not saved: write `from package import name`.")
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        is_relative = isinstance(node, ast.ImportFrom) and node.level > 0
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        if is_relative or any(path.with_name(f"{name.partition('.')[0]}.py").is_file() for name in names):
            raise ValueError(f"{path}:{node.lineno} is not saved: it may import no file beside it.")
        if not isinstance(node, ast.ImportFrom):
            continue
        package = node.module or ""
        if package.partition(".")[0] not in PACKAGES:
            continue
        by_group: dict[str, list[str]] = {}
        for alias in node.names:
            what = alias.name + (f" as {alias.asname}" if alias.asname else "")
            by_group.setdefault(group_of(alias.name, package, modules, path), []).append(what)
        imports = (f"from .{group} import {', '.join(names)}" for group, names in by_group.items())
        indent = " " * node.col_offset
        for number in range(node.lineno, node.end_lineno or node.lineno):
            lines[number] = None
        lines[node.lineno - 1] = "\n".join(indent + line for line in imports)
    return "\n".join(line for line in lines if line is not None) + "\n"


def group_of(name: str, imported_from: str, modules: dict[str, tuple[Module, str]], path: Path) -> str:
    """The group that defines what `from imported_from import name` imports."""
    if imported_from in modules:
        return modules[imported_from][1]
    for module, group in modules.values():
        if any(name in names_of(node) for node in module.tree.body):
            return group
    raise ValueError(f"{path} is not saved: it imports {name} of {imported_from}, which models do not need.")


def entry_code(others: list[tuple[str, str]], auto_map: dict[str, str]) -> str:
    """The last lines of the file that config.json names: they import the other files and the model's classes."""
    names = {f".{Path(file).stem}": {name} for file, name in others}
    for reference in auto_map.values():
        module, name = reference.split(".")
        names.setdefault(f".{module}", set()).add(name)
    classes = sorted({reference.split(".")[1] for reference in auto_map.values()})
    imports = "\n".join(map(import_statement, sorted(names.items())))
    return ENTRY.format(imports=imports, names="".join(f"    {name},\n" for name in classes))
