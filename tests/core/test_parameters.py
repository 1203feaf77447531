"""The documentation of everything public names each parameter: of a constructor, that of its class."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import touchfs.write

PACKAGES = ["touchfs", "touchfs.node", "touchfs.torch", "touchfs.testing", "touchfs.write"]
# Of these the user gets objects.
PACKAGES += ["touchfs.open_dataset", "touchfs.dataset.sample"]
PACKAGES += [module.name for module in pkgutil.iter_modules(touchfs.write.__path__, "touchfs.write.")]


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions that a module exports: those in `__all__`, or that it defines."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    for name in names:
        value = getattr(module, name)
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            yield f"{module.__name__}.{name}", value


def undocumented(function: Callable[..., Any], text: str | None) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return []
    if getattr(function, "_is_protocol", False):  # its constructor is no one's
        return []
    names = [name for name in parameters if name not in ("self", "cls") and not name.startswith("_")]
    return [name for name in names if not re.search(rf"(?<!\w){name}(?!\w)", text or "")]


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods that a class or one of our classes below it defines."""
    for name, value in inspect.getmembers(kind, callable):
        function = inspect.unwrap(getattr(value, "__func__", value))
        if not name.startswith("_") and getattr(function, "__module__", "").startswith("touchfs"):
            yield f"{function.__module__}.{function.__qualname__}", value


def test_every_parameter_is_named() -> None:
    missing: set[str] = set()
    for module in map(importlib.import_module, PACKAGES):
        for name, value in public(module):
            missing |= {f"{name}: {each}" for each in undocumented(value, inspect.getdoc(value))}
            if inspect.isclass(value):
                for method, function in methods(value):
                    missing |= {f"{method}: {each}" for each in undocumented(function, inspect.getdoc(function))}
    assert sorted(missing) == []
