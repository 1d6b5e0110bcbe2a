"""`tf.contrib.training`: hyperparameters, bucketing by length, and training loops."""

from __future__ import annotations

__all__ = ["HParams", "bucket", "bucket_by_sequence_length", "parse_values"]

import json
import re
from collections.abc import Mapping
from typing import Any

from weft_io.input.bucketing import bucket, bucket_by_sequence_length
from weft_tensor import errors

_PART = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(?:\[(?P<values>[^\]]*)\]|(?P<value>[^,\[]*))(?:$|,)\s*"
)


def parse_values(
    values: str, type_map: Mapping[str, type], ignore_unknown: bool = False
) -> dict[str, Any]:
    """Parse values from a text such as "rate=0.1,layers=[32,16],name=x".

    Args:
      values: the text.
      type_map: the type of each name.
      ignore_unknown: skip unknown names.
    Returns: values by name; for "name[1]=5" a dictionary by index.
    Raises: InvalidArgumentError: the text is malformed, a name is unknown or repeated, or a value
      has a wrong type.

    Examples:
      >>> wf.contrib.training.parse_values("a=1,b=[0.5,2]", {"a": int, "b": float})
      {'a': 1, 'b': [0.5, 2.0]}
    """
    parsed: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = _PART.match(values, position)
        if match is None:
            raise errors.InvalidArgumentError(
                f"Malformed hyperparameter value: {values[position:]}"
            )
        position = match.end()
        name, index = match["name"], match["index"]
        if name not in type_map:
            if ignore_unknown:
                continue
            raise errors.InvalidArgumentError(f"Unknown hyperparameter type for {name}")
        if name in parsed and index is None:
            raise errors.InvalidArgumentError(f"Multiple assignments to variable {name!r}")
        kind = type_map[name]
        if match["values"] is not None:
            texts = [text for text in map(str.strip, match["values"].split(",")) if text]
            parsed[name] = [_value(name, text, kind) for text in texts]
        elif index is not None:
            parsed.setdefault(name, {})[int(index)] = _value(name, match["value"].strip(), kind)
        else:
            parsed[name] = _value(name, match["value"].strip(), kind)
    return parsed


def _value(name: str, text: str, kind: type) -> Any:
    try:
        if kind is bool:
            booleans = {"true": True, "1": True, "false": False, "0": False}
            return booleans[text.lower()]
        if kind is int:
            return int(text)
        return kind(text)
    except (ValueError, KeyError):
        raise errors.InvalidArgumentError(
            f"Could not parse hparam {name!r} of type {kind.__name__!r} with value {text!r}"
        ) from None


class HParams:
    """Hyperparameters: attributes that can be set from a string.

    Args:
      hparam_def: not supported.
      model_structure: value of `get_model_structure`.
      **kwargs: names and initial values; these determine the types.
    Raises: InvalidArgumentError: a name is that of a method, or a list is empty.

    Examples:
      >>> hparams = wf.contrib.training.HParams(rate=0.1, layers=[32, 16])
      >>> hparams.parse("rate=0.5,layers[1]=8").values()
      {'rate': 0.5, 'layers': [32, 8]}
    """

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any) -> None:
        if hparam_def is not None:
            raise errors.UnimplementedError(
                "HParams does not support hparam_def messages; pass names and values"
            )
        self._hparam_types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter.

        Args:
          name: a new name.
          value: a number, a string, a bool, None, or a list of these.
        """
        if getattr(self, name, None) is not None or name in self._hparam_types:
            raise errors.InvalidArgumentError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, list | tuple)
        if is_list and not value:
            raise errors.InvalidArgumentError(
                f"Multi-valued hyperparameters cannot be empty: {name}"
            )
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, list(value) if is_list else value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Change one hyperparameter.

        Args:
          name: name of an existing hyperparameter.
          value: a value of the same type.
        Raises:
          InvalidArgumentError: the hyperparameter does not exist, or the value is of another type.
        """
        if name not in self._hparam_types:
            raise errors.InvalidArgumentError(f"Unknown hyperparameter: {name}")
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list | tuple) is not is_list:
            raise errors.InvalidArgumentError(
                f"{name} {'is a list' if is_list else 'is not a list'}, got {value!r}"
            )
        converted = [_cast(name, kind, v) for v in value] if is_list else _cast(name, kind, value)
        setattr(self, name, converted)

    def del_hparam(self, name: str) -> None:
        """Remove a hyperparameter if it exists.

        Args:
          name: name of the hyperparameter.
        """
        if self._hparam_types.pop(name, None) is not None:
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Change the hyperparameters that a string names.

        Args:
          values: as for `parse_values`.
        Returns: this object.
        """
        types = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, types))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Change several hyperparameters.

        Args:
          values_dict: values by name; for elements of a list, a dictionary by index.
        Returns: this object.
        """
        for name, value in values_dict.items():
            if isinstance(value, dict):
                changed = list(getattr(self, name))
                for key, element in value.items():
                    changed[key] = element
                value = changed
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Change the hyperparameters that a JSON object names.

        Args:
          values_json: the text.
        Returns: this object.
        """
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """Return all hyperparameters as a JSON object, without functions.

        Args:
          indent, separators, sort_keys: as for `json.dumps`.
        """
        plain = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(plain, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """Return all hyperparameters by name."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a hyperparameter by name.

        Args:
          key: the name.
          default: the result if it does not exist.
        """
        return getattr(self, key) if key in self._hparam_types else default

    def get_model_structure(self) -> Any:
        """Return the `model_structure`."""
        return self._model_structure

    def set_model_structure(self, model_structure: Any) -> None:
        """Set the `model_structure`.

        Args:
          model_structure: anything.
        """
        self._model_structure = model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"HParams({self})"


def _cast(name: str, kind: type, value: Any) -> Any:
    if value is None or kind is type(None) or isinstance(value, kind):
        if kind is int and isinstance(value, bool):
            raise errors.InvalidArgumentError(f"{name} is an int, got {value!r}")
        return value
    numbers = kind is float and isinstance(value, int) and not isinstance(value, bool)
    if numbers or (kind is int and isinstance(value, float) and value.is_integer()):
        return kind(value)
    if kind is bool and isinstance(value, int):
        return bool(value)
    raise errors.InvalidArgumentError(
        f"Could not cast hparam {name!r} of type {kind.__name__!r} from value {value!r}"
    )
