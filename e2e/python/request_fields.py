"""Prints the fields of a type of openai-python's requests, by their paths, one a line."""

import importlib
import sys
import types
import typing


def fields(kind, path, above, found):
    """Adds the paths of the fields of a TypedDict, and of all types in it."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) not in (None, dict, typing.Literal):
        for part in typing.get_args(kind):
            fields(part, path, above, found)
    elif hasattr(kind, "__total__") and kind not in above:  # of typing_extensions too
        for name, inner in typing.get_type_hints(kind).items():
            found.add(path + name)
            fields(inner, path + name + ".", above | {kind}, found)


module, _, name = sys.argv[1].partition(":")
found = set()
fields(getattr(importlib.import_module(module), name), "", frozenset(), found)
print("\n".join(sorted(found)))
