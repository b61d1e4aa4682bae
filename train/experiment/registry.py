"""Strategies: what may stand in for a default of the job. Each is a folder, which is imported only
if it is chosen.

A seam is a place in the job that more than one thing fits, as the exchange between ranks.
`train/strategies/SEAM/KIND` has `section.py`, the section of the configuration that chooses it by
its key `kind`, and the code. Without the folder the kind is unknown, and everything else works.
"""

from pathlib import Path
from types import ModuleType
from typing import ClassVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, core_schema

from namsa.base.registry import Registry
from namsa.config.loading import Section

FOLDER = Path(__file__).parent.parent / "strategies"
_STRATEGIES = Registry(f"{__package__.rpartition('.')[0]}.strategies", FOLDER, "namsa.strategies")


def kinds(seam: str) -> list[str]:
    """Returns the kinds of strategies of a seam."""
    return _STRATEGIES.names(seam, having="section.py")


def strategy(seam: str, kind: str, module: str) -> ModuleType:
    """Imports a module of a strategy."""
    return _STRATEGIES.module(seam, kind, module)


class KindSection(Section):
    """Base class of the sections of a seam, one for each kind.

    Attributes:
        variants: The sections that are known, by kind. Each seam has its own.
    """

    variants: ClassVar[dict[str, type[Section]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: object) -> None:
        """Adds the section of a kind to those that are known."""
        if kind := cls.model_fields.get("kind"):
            cls.variants[kind.default] = cls


class OfKind:
    """Annotates a field whose section is chosen by the section's key `kind`.

    Args:
        chosen: The kinds to choose from, beside the default's; `None` for all.
    """

    def __init__(
        self, seam: str, default: type[Section], chosen: tuple[str, ...] | None = None
    ) -> None:
        self.seam = seam
        self.default = default
        self.chosen = chosen
        self.default_kind = default.model_fields["kind"].default

    def kinds(self) -> list[str]:
        """Returns the kinds to choose from."""
        kind_names = kinds(self.seam)
        return [
            self.default_kind,
            *(kind for kind in kind_names if self.chosen is None or kind in self.chosen),
        ]

    def section(self, kind: str) -> type[Section]:
        """Returns the section of a kind, which is imported for it."""
        if kind != self.default_kind:
            strategy(self.seam, kind, "section")
        return self.default.variants[kind]

    def _validate(self, value: object) -> Section:
        if isinstance(value, Section) and getattr(value, "kind", None) in self.kinds():
            return value
        if not isinstance(value, dict):
            raise ValueError(f"a section is needed, as {{kind: {self.default_kind}}}")
        kind = value.get("kind", self.default_kind)
        if kind not in self.kinds():
            raise ValueError(f"kind {kind!r} is none of {', '.join(self.kinds())}")
        section = self.section(kind)
        try:
            return section.model_validate(value)
        except ValidationError as error:
            faults = [
                InitErrorDetails(
                    type=fault["type"],
                    loc=(kind, *fault["loc"]),
                    input=fault["input"],
                    ctx=fault.get("ctx", {}),
                )
                for fault in error.errors(include_url=False)
            ]
            raise ValidationError.from_exception_data(section.__name__, faults) from None

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Validates by the kind, and writes all keys of the section that there is."""
        return core_schema.no_info_plain_validator_function(
            self._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                _serialized, info_arg=True
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The sections of all kinds, which are imported for it."""
        return {
            "anyOf": [handler(self.section(kind).__pydantic_core_schema__) for kind in self.kinds()]
        }


def _serialized(section: Section, info: SerializationInfo) -> dict[str, object]:
    """The keys of a section, its kind among them even where defaults are left out."""
    plain = section.model_dump(mode=info.mode, exclude_defaults=info.exclude_defaults)
    return {"kind": getattr(section, "kind", None)} | plain
