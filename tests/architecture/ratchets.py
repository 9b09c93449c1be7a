"""What the source and the tests may have no more of than today.

`exceptions.json` lists what there is: kind -> subject -> file -> number. The tests fail where a subject has more in all
files together than is listed, so that code can move between files. Entries that are no longer true do no harm; they go
when the list is made again:

    python -m tests.architecture.ratchets

which refuses if a number would grow.
"""

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.architecture.source import PACKAGE

EXCEPTIONS = Path(__file__).with_name("exceptions.json")
TESTS = Path(__file__).parents[1]
#: Metaphors where schedulers or PyTorch have a word of their own; no identifier has them as a part.
METAPHORS = {
    "agenda", "bury", "crew", "despair", "door", "errand", "leash", "menu", "mourn", "muster", "nursery", "pledge",
    "roster", "voice", "wish",
}  # fmt: skip
#: Words that say nothing of what they stand for; no identifier consists of one alone.
PRONOUNS = {"found", "mine", "one", "other_one", "ours", "theirs", "whole", "yours"}

#: Kind -> subject -> file -> number.
Counts = dict[str, dict[str, dict[str, int]]]
#: File, relative to the package -> its text.
Sources = Mapping[str, str]


def sources(folder: Path = PACKAGE) -> dict[str, str]:
    """All files of the package, or of another folder."""
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}


def counted_everywhere() -> Counts:
    """What there is in the package and in the tests."""
    return counted(sources()) | counted_in_tests(sources(TESTS))


def counted(texts: Sources) -> Counts:
    """What there is, of each kind."""
    trees = {file: ast.parse(text, file) for file, text in texts.items()}
    nodes = {file: list(ast.walk(tree)) for file, tree in trees.items()}
    return {
        "classes of one name": _repeated(_by_file(lambda file: _classes(nodes[file]), filter(_is_product, texts))),
        "fmt: skip": _by_file(lambda file: {"fmt: skip": texts[file].count("# fmt: skip")}, texts),
        "code lines": {"of the product": _code_lines(nodes, texts)},
        "forbidden names": _by_file(lambda file: Counter(filter(is_forbidden, bound_names(nodes[file]))), texts),
        "numeric constants": _by_file(
            lambda file: {"of modules": sum(1 for _ in numeric_constants(trees[file]))}, filter(_is_product, texts)
        ),
        "print": _by_file(lambda file: {"print": sum(map(_is_print, nodes[file]))}, texts),
    }


def counted_in_tests(texts: Sources) -> Counts:
    """Private attributes of other objects in tests, which are to look at what a caller can see."""
    nodes = {file: list(ast.walk(ast.parse(text, file))) for file, text in texts.items()}
    return {"private attributes": _by_file(lambda file: {"in tests": sum(map(_is_of_another, nodes[file]))}, texts)}


def grown(now: Counts, before: Counts) -> list[str]:
    """What there is more of than before."""
    return [
        f"{kind}: {subject}: {sum(files.values())}, and {sum(old.values())} are allowed; more in {_more(files, old)}"
        for kind, subjects in now.items()
        for subject, files in subjects.items()
        if sum(files.values()) > sum((old := before.get(kind, {}).get(subject, {})).values())
    ]


def listed() -> Counts:
    """What is allowed."""
    counts: Counts = json.loads(EXCEPTIONS.read_text(encoding="utf-8"))
    return counts


@cache
def is_forbidden(name: str) -> bool:
    """Whether an identifier is or has a word that says too little."""
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return name.strip("_") in PRONOUNS or any(_stem(word) in METAPHORS for word in words)


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The identifiers that these nodes give to things, one for each place where they do."""
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name


def numeric_constants(tree: ast.Module) -> Iterator[str]:
    """The names of a module that stand for numbers written there: a limit, a time, a tuned value; also several in one line."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (ast.unparse(name) for name, value in zip(names, values, strict=True) if _is_number(value))
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if _is_number(value):
                yield name


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
    return False


def _code_lines(nodes: Mapping[str, Sequence[ast.AST]], texts: Sources) -> dict[str, int]:
    """Lines of each package of the product that are neither blank nor a comment nor of a docstring: words cost nothing."""
    n_lines = Counter[str]()
    for file in filter(_is_product, texts):
        words = {i for node in nodes[file] for i in _docstring_lines(node)}
        lines = enumerate(map(str.strip, texts[file].splitlines()), 1)
        n_lines[file.split("/")[0]] += sum(bool(line) and line[0] != "#" and i not in words for i, line in lines)
    return dict(n_lines)


def _docstring_lines(node: ast.AST) -> range:
    """Return the numbers of the lines of a docstring."""
    match node:
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if (
            ast.get_docstring(node) is not None
        ):
            words = node.body[0]
            return range(words.lineno, (words.end_lineno or words.lineno) + 1)
    return range(0)


def _stem(word: str) -> str:
    """The singular of a noun, or the infinitive of a verb, as far as `METAPHORS` needs it."""
    for ending, instead in (("ies", "y"), ("ied", "y"), ("es", ""), ("ed", ""), ("s", "")):
        if word.endswith(ending) and (stem := word.removesuffix(ending) + instead) in METAPHORS:
            return stem
    return word


def _classes(nodes: Iterable[ast.AST]) -> Iterable[str]:
    """Return the names of classes, without the underscore of a private one: a reader meets both."""
    return [node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef)]


def _is_product(file: str) -> bool:
    """Whether it is no paper's, whose folder has names of its own."""
    return not file.startswith("papers/")


def _is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def _is_of_another(node: ast.AST) -> bool:
    """Whether it is a private attribute of anything but `self` or `cls`; `os._exit` is none."""
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")) | ast.Attribute(value=ast.Name(id="os"), attr="_exit"):
            return False
        case ast.Attribute(attr=name):
            return name.startswith("_") and not name.startswith("__")
    return False


def _by_file(
    count: Callable[[str], Mapping[str, int] | Iterable[str]], files: Iterable[str]
) -> dict[str, dict[str, int]]:
    subjects: dict[str, dict[str, int]] = defaultdict(dict)
    for file in files:
        for subject, number in Counter(count(file)).items():
            if number:
                subjects[subject][file] = number
    return dict(subjects)


def _repeated(subjects: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {subject: files for subject, files in subjects.items() if sum(files.values()) > 1}


def _more(files: Mapping[str, int], old: Mapping[str, int]) -> str:
    return ", ".join(file for file, number in sorted(files.items()) if number > old.get(file, 0))


def main() -> int:
    """Write the list anew, unless there is more of something; the exit status."""
    now = counted_everywhere()
    if EXCEPTIONS.exists() and (more := grown(now, listed())):
        print("The list stays as it is, because it would grow:", *more, sep="\n  ")
        return 1
    EXCEPTIONS.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
