# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What names in Python files refer to, by Python's own symtable and ast.

Labelled is every name in an expression and every attribute, with one of `KINDS`. Names are resolved as the compiler
does it: through functions, past class bodies, by `global` and `nonlocal`. These have no label: names inside of
f-strings, since Python before 3.12 has no tokens there; names that one scope binds in several ways, such as an import
that falls back to an assignment; names that may come from `from … import *`; and names that nothing in the file binds.
"""

import ast
import builtins
import io
import symtable
import tokenize
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import contextmanager
from types import ModuleType
from typing import NamedTuple


# "local" is assigned in a function, class body or comprehension, "global" in the module, also by loops and `with`.
KINDS = ("module", "imported", "function", "class", "global", "parameter", "local", "builtin", "attribute")
ASSIGNED = "assigned"
# How tokens without words are written; comments are left out, and all numbers and all strings are the same.
WORDS = {
    tokenize.NEWLINE: "¶",
    tokenize.INDENT: "»",
    tokenize.DEDENT: "«",
    tokenize.NUMBER: "0",
    tokenize.STRING: '""',
}
LEFT_OUT = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
BUILTINS = frozenset(dir(builtins)) - vars(ModuleType("any")).keys()  # every module has its own __name__


class Occurrence(NamedTuple):
    """
    Args:
        word: index of the name among the words of its file.
        name: the name itself.
        kind: one of `KINDS`.
        binding: index of the nearest word that binds the name; `None` for built-ins and attributes.
    """

    word: int
    name: str
    kind: str
    binding: int | None


class Code(NamedTuple):
    """The tokens of a file as words, and the names among them that have a label, in order."""

    words: list[str]
    names: list[Occurrence]


class Scope:
    """A table of symbols, and those inside of it that were not entered yet."""

    def __init__(self, table: symtable.SymbolTable, parent: "Scope | None", private: str | None):
        self.table, self.parent, self.private = table, parent, private
        self.inside = defaultdict(deque)
        for child in table.get_children():
            self.inside[child.get_name(), child.get_lineno()].append(child)

    def enter(self, name: str, line: int, private: str | None = None) -> "Scope":
        """The scope that begins on a line; a ValueError if the compiler has another one there."""
        found = self.inside[name, line]
        if not found:
            raise ValueError(f"line {line}: symtable has no scope {name!r} there.")
        return Scope(found.popleft(), self, private or self.private)

    def mangled(self, name: str) -> str:
        """As the compiler writes private names of classes."""
        is_private = self.private and name.startswith("__") and not name.endswith("__")
        return f"_{self.private.lstrip('_')}{name}" if is_private and self.private.strip("_") else name

    def owner(self, name: str, is_annotation: bool) -> "Scope | None":
        """
        The scope that a name in this scope belongs to, `None` for what the compiler itself binds. Tables need not have
        the names in annotations: the scope that encloses them says what they are. A ValueError for other names.
        """
        module = self
        while module.parent:
            module = module.parent
        try:
            symbol = self.table.lookup(name)
        except KeyError:
            if not is_annotation:
                raise ValueError(f"symtable has no {name!r} in {self.table.get_name()!r}.") from None
            return self.enclosing(name) or module
        if self is module or symbol.is_global():
            return module
        return self if symbol.is_local() else self.enclosing(name)

    def enclosing(self, name: str) -> "Scope | None":
        """The nearest function around this scope that binds a name."""
        scope = self.parent
        while scope and scope.parent:
            table = scope.table
            if table.get_type() == "function" and name in table.get_identifiers() and table.lookup(name).is_local():
                return scope
            scope = scope.parent
        return None


class Names(ast.NodeVisitor):
    """Collects where names of a file are used, `uses`, and bound, `bindings`, each with the scope it belongs to."""

    def __init__(self, source: str, tokens: list[tokenize.TokenInfo]):
        self.scope = Scope(symtable.symtable(source, "<file>", "exec"), None, None)
        self.module = self.scope
        self.lines = io.StringIO(source).readlines()
        self.tokens = tokens
        self.starts = {token.start: n for n, token in enumerate(tokens)}
        self.ends = {token.end: n for n, token in enumerate(tokens)}
        self.bindings: dict[tuple[Scope, str], list[tuple[str, int]]] = defaultdict(list)
        self.uses: list[tuple[int, str, Scope | None]] = []
        self.attributes: list[tuple[int, str]] = []
        self.has_star = self.in_string = self.in_annotation = False

    def place(self, line: int, column: int) -> tuple[int, int]:
        """The columns of ast are bytes, those of tokenize characters."""
        text = self.lines[line - 1]
        return line, column if text.isascii() else len(text.encode()[:column].decode())

    def start(self, node: ast.AST) -> int:
        return self.starts[self.place(node.lineno, node.col_offset)]

    def end(self, node: ast.AST) -> int:
        return self.ends[self.place(node.end_lineno, node.end_col_offset)]

    def after(self, word: int, *texts: str) -> int:
        """The first word behind one of these texts, from a word on."""
        return next(n for n in range(word, len(self.tokens)) if self.tokens[n].string in texts) + 1

    def bind(self, name: str, kind: str, word: int | None) -> None:
        name = self.scope.mangled(name)
        owner = self.scope.owner(name, self.in_annotation)
        if owner is not None and word is not None:
            self.bindings[owner, name].append((kind, word))

    @contextmanager
    def inside(self, scope: Scope):
        before, self.scope = self.scope, scope
        yield
        self.scope = before

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def annotation(self, node: ast.AST | None) -> None:
        before, self.in_annotation = self.in_annotation, True
        self.visit_all([node])
        self.in_annotation = before

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        before, self.in_string = self.in_string, True
        self.generic_visit(node)
        self.in_string = before

    def visit_Name(self, node: ast.Name) -> None:
        word = None if self.in_string else self.start(node)
        if isinstance(node.ctx, ast.Store):
            self.bind(node.id, ASSIGNED, word)
        if word is not None:
            name = self.scope.mangled(node.id)
            self.uses.append((word, name, self.scope.owner(name, self.in_annotation)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        if not self.in_string:
            self.attributes.append((self.end(node), node.attr))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        self.annotation(node.annotation)
        self.visit_all([node.value])

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.asname or alias.name.split(".")[0]
            self.bind(first, "module", self.end(alias) if alias.asname else self.start(alias))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self.has_star = True
            else:
                self.bind(alias.asname or alias.name, "imported", self.end(alias))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.visit_all([node.type])
        if node.name:
            self.bind(node.name, ASSIGNED, self.after(self.end(node.type), "as"))
        self.visit_all(node.body)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.visit_all([node.pattern])
        if node.name:
            self.bind(node.name, ASSIGNED, self.end(node))

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self.bind(node.name, ASSIGNED, self.end(node))

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest:
            last = self.end(node)
            self.bind(node.rest, ASSIGNED, max(n for n in range(last) if self.tokens[n].string == node.rest))

    def enter_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> Scope:
        """The scope of a function, with its parameters; what stands in its head belongs to the scope around it."""
        arguments = node.args
        parameters = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        parameters = [x for x in parameters if x is not None]
        self.visit_all([*arguments.defaults, *arguments.kw_defaults])
        for parameter in parameters:
            self.annotation(parameter.annotation)
        scope = self.scope.enter(name, node.lineno)
        with self.inside(scope):
            expected = {scope.mangled(x.arg) for x in parameters}
            if expected != {x for x in scope.table.get_parameters() if not x.startswith(".")}:
                raise ValueError(f"line {node.lineno}: symtable has another function there.")
            for parameter in parameters:
                self.bind(parameter.arg, "parameter", None if self.in_string else self.start(parameter))
        return scope

    def visit_Lambda(self, node: ast.Lambda) -> None:
        with self.inside(self.enter_function(node, "lambda")):
            self.visit(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        refuse_type_parameters(node)
        self.bind(node.name, "function", self.after(self.start(node), "def"))
        self.visit_all(node.decorator_list)
        self.annotation(node.returns)
        with self.inside(self.enter_function(node, node.name)):
            self.visit_all(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        refuse_type_parameters(node)
        self.bind(node.name, "class", self.start(node) + 1)
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        with self.inside(self.scope.enter(node.name, node.lineno, private=node.name)):
            self.visit_all(node.body)

    def comprehension(self, node, name: str, *results: ast.AST) -> None:
        """The first iterable belongs to the scope around a comprehension, all else to its own."""
        first, *others = node.generators
        self.visit(first.iter)
        with self.inside(self.scope.enter(name, node.lineno)):
            self.visit_all([first.target, *first.ifs])
            for other in others:
                self.visit_all([other.target, other.iter, *other.ifs])
            self.visit_all(results)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self.comprehension(node, "listcomp", node.elt)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self.comprehension(node, "setcomp", node.elt)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self.comprehension(node, "genexpr", node.elt)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self.comprehension(node, "dictcomp", node.key, node.value)

    def labelled(self) -> Iterable[Occurrence]:
        for word, name in self.attributes:
            yield Occurrence(word, name, "attribute", None)
        for word, name, owner in self.uses:
            if owner is None:
                continue
            bound = self.bindings.get((owner, name), [])
            kinds = {kind for kind, _ in bound}
            if not bound and owner is self.module and name in BUILTINS and not self.has_star:
                yield Occurrence(word, name, "builtin", None)
            elif "parameter" in kinds or len(kinds) == 1:
                kind = "parameter" if "parameter" in kinds else kinds.pop()
                kind = ("global" if owner is self.module else "local") if kind == ASSIGNED else kind
                yield Occurrence(word, name, kind, min((place for _, place in bound), key=lambda n: abs(n - word)))


def refuse_type_parameters(node: ast.AST) -> None:
    if getattr(node, "type_params", None):
        raise ValueError(f"line {node.lineno}: type parameters have scopes of their own, which are not read.")


def read_code(source: str) -> Code:
    """
    The words of Python source text and what its names refer to.

    Raises:
        ValueError: if this Python cannot compile it, or has scopes that ast does not show.
    """
    try:
        tokens = [x for x in tokenize.generate_tokens(io.StringIO(source).readline) if x.type not in LEFT_OUT]
        names = Names(source, tokens)
        names.visit(ast.parse(source))
    except (SyntaxError, tokenize.TokenError, RecursionError, KeyError) as error:
        raise ValueError(f"The source cannot be read: {error}") from error
    words = [WORDS.get(token.type, token.string) for token in tokens]
    return Code(words, sorted(names.labelled()))
