"""Functions of `oc.ops` as a study's file names them, and the parameters that its inputs are."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import offcut as oc
from offcut.core.names import similar_names
from offcut.studies.errors import Place, refusal


def function_named(name: str, at: Place) -> Any:
    """Return the function of `oc.ops` of a name.

    Raises DescribeError where there is none, with names that are spelt alike.
    """
    function = getattr(oc.ops, name, None)
    if function is None or name.startswith("_") or not callable(function):
        public = [one for one in dir(oc.ops) if not one.startswith("_")]
        close = filter(None, [similar_names(name, public)])
        raise refusal(at, f"there is no oc.ops.{name}", *close)
    return function


def inputs_in_order(
    name: str, inputs: Mapping[str, Any], arguments: Mapping[str, Any], at: Place
) -> Mapping[str, Any]:
    """Return the inputs in the order of the parameters of a function of `oc.ops`, where all are called as parameters; else as they are.

    Raises DescribeError for an input whose name is that of a parameter but for its spelling, or of another one than it would be.
    """
    signature = inspect.signature(getattr(oc.ops, name))
    if any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values()):
        return inputs
    parameters = [one for one in signature.parameters if one not in arguments]
    if all(label in parameters for label in inputs):
        return {one: inputs[one] for one in parameters if one in inputs}
    _check_names(name, [*inputs], parameters, at)
    return inputs


def bind_inputs(
    name: str, inputs: Sequence[oc.Tensor], arguments: Mapping[str, Any], at: Place
) -> tuple[Sequence[oc.Tensor], Mapping[str, Any]]:
    """Return the positional arguments and those by name that a function of `oc.ops` is called with.

    inputs  as of `inputs_in_order`: its parameters in order, but for those that `arguments` name, or called as they are

    Raises DescribeError for what the function does not take.
    """
    signature = inspect.signature(getattr(oc.ops, name))
    parameters, labels = [*signature.parameters], [one.name for one in inputs]
    places = labels
    if not {*labels} <= {*parameters}:
        places = [one for one in parameters if one not in arguments][: len(inputs)]
    positional: Sequence[oc.Tensor] = inputs
    if len(places) == len(inputs) and parameters[: len(places)] != places:
        positional = ()
        arguments = {**dict(zip(places, inputs, strict=True)), **arguments}
    check_arguments(getattr(oc.ops, name), arguments, at, positional, f"oc.ops.{name}")
    return positional, arguments


def check_arguments(
    function: Any,
    arguments: Mapping[str, Any],
    at: Place,
    positional: Sequence[Any] = (),
    name: str = "",
) -> None:
    """Check that a function takes some arguments; one without a signature takes any.

    at    the place of the operator
    name  of the function, in errors

    Raises DescribeError with its signature.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*positional, **arguments)
    except TypeError as error:
        name = name or getattr(function, "__name__", "it")
        raise refusal(at / "arguments", f"{name}: {error}", f"{name}{signature}") from error


def _check_names(name: str, labels: Sequence[str], parameters: Sequence[str], at: Place) -> None:
    """Refuse a name that is nearly a parameter's, and one of another parameter than the input would be.

    parameters  those that no argument names, in order
    """
    for label in labels:
        if label in parameters:
            continue
        free = [one for one in parameters if one not in labels]
        for close in get_close_matches(label, free, 1):
            because = f"oc.ops.{name} has no parameter {label!r}"
            raise refusal(at / "inputs" / label, because, f"{close} = …")
    for label, place in zip(labels, parameters, strict=False):
        if label in parameters and label != place:
            because = f"{label!r} would be the parameter {place!r}: where a name is no parameter's, inputs are parameters in order"
            raise refusal(
                at / "inputs" / label, because, f"the parameters are {', '.join(parameters)}"
            )
