"""`namsa schema`: the keys of a configuration."""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from namsa.config.simulation import SimulationConfig

Schema = Mapping[str, Any]  # JSON schema, draft 2020-12, as pydantic writes it

CHOICES = ("kind", "rule")  # keys whose value tells which section it is
BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
WORDS = {"string": "text", "boolean": "true or false", "array": "list"}
SEVERAL = ("anyOf", "oneOf", "prefixItems")


def schema(options: argparse.Namespace) -> None:
    """Prints the keys of what `namsa` reads."""
    print_schema(SimulationConfig, options)


def print_schema(config: type[BaseModel], options: argparse.Namespace) -> None:
    """Prints the JSON schema of a configuration, or tables of its keys in Markdown."""
    keys = config.model_json_schema()
    if options.markdown:
        print(key_tables(keys), end="")
    else:
        print(json.dumps(keys, indent=0, ensure_ascii=False))


def key_tables(schema: Schema) -> str:
    """Returns a table of each section: its keys, their values, defaults and meaning.

    A section that several keys have is listed under the first of them.
    """
    return "\n".join(_Tables(schema["$defs"]).section(schema, "")) + "\n"


class _Tables:
    """The tables of a schema."""

    def __init__(self, definitions: Schema) -> None:
        self.definitions = definitions
        self.headings: dict[str, str] = {}  # of the sections that have a table, by name

    def section(self, section: Schema, heading: str) -> Iterator[str]:
        """Yields the lines of a section's table, then those of the sections in it."""
        if heading:
            yield f"\n## {heading}\n"
        yield section.get("description", "").partition("\n\nAttributes:")[0] + "\n"
        yield "| key | value | default | meaning |\n|---|---|---|---|"
        below = []
        path = heading.partition(" ")[0]
        for key, value in section["properties"].items():
            for name, inner in self._sections_of(value):
                if name not in self.headings:
                    keys = inner["properties"]
                    kind = next(
                        (
                            keys[choice]["const"]
                            for choice in CHOICES
                            if "const" in keys.get(choice, ())
                        ),
                        None,
                    )
                    self.headings[name] = f"{path}.{key}".lstrip(".") + (
                        f" ({kind})" if kind else ""
                    )
                    below.append((inner, self.headings[name]))
            default = _default(value.get("default"))
            if key in section.get("required", ()):
                default = "required"
            cells = (f"`{key}`", self._text(value), default, self._meaning(key, value))
            yield (
                "| "
                + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
                + " |"
            )
        for inner, title in below:
            yield from self.section(inner, title)

    def _meaning(self, key: str, value: Schema) -> str:
        """Returns the description of a key: its own, or what the sections that it can be say."""
        if "description" in value:
            return str(value["description"])
        if key in CHOICES:
            return "chooses this section"
        sections = [inner for _, inner in self._sections_of(value)]
        if len(sections) > 1:
            return "one of these sections, chosen by its kind"
        return _first_sentence(sections[0].get("description", "")) if sections else ""

    def _definition(self, value: Schema) -> tuple[str, Schema]:
        """Returns the name and the definition of what a value can be."""
        name = value["$ref"].rpartition("/")[2] if "$ref" in value else value.get("title", "")
        return name, self.definitions[name] if "$ref" in value else value

    def _sections_of(self, value: Schema) -> Iterator[tuple[str, Schema]]:
        """Yields the sections that a value can be, or that are in it, and their names."""
        name, definition = self._definition(value)
        if definition.get("properties"):
            yield name, definition
            return
        within = (definition.get("items"), definition.get("additionalProperties"))
        for inner in (*(inner for of in SEVERAL for inner in definition.get(of, ())), *within):
            if isinstance(inner, Mapping):
                yield from self._sections_of(inner)

    def _text(self, value: Schema) -> str:
        """Returns what a value can be, in words."""
        name, value = self._definition(value)
        if value.get("properties"):
            anchor = re.sub(r"[^\w -]", "", self.headings[name]).replace(" ", "-").lower()
            return f"section [{self.headings[name]}](#{anchor})"
        choices = value.get("anyOf") or value.get("oneOf")
        if choices:
            return " or ".join(dict.fromkeys(map(self._text, choices)))
        if "enum" in value or "const" in value:
            return ", ".join(f"`{choice}`" for choice in value.get("enum", [value.get("const")]))
        if value.get("prefixItems"):
            return self._list_text(value["prefixItems"])
        inner = value.get("items") or value.get("additionalProperties")
        of = ""
        if isinstance(inner, Mapping) and inner:
            of = self._text(inner)
        if value.get("type") == "object":
            return f"names, each with {of}" if of else "names and values"
        text = WORDS.get(value.get("type", ""), str(value.get("type", "any")))
        if of:
            text += f" of {of}"
        for bound, sign in BOUNDS.items():
            if bound in value:
                text += f", {sign} {value[bound]:g}"
        return text

    def _list_text(self, items: Sequence[Schema]) -> str:
        """Returns what a list of fixed length holds, in words."""
        texts = [self._text(item) for item in items]
        if len(set(texts)) == 1:
            return f"list of {len(texts)}: each {texts[0]}"
        return f"list of {len(texts)}: {'; '.join(texts)}"


def _first_sentence(text: str) -> str:
    """Returns a description's first sentence, as the cell of a table has it: without its stop."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = paragraph.partition(". ")[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def _default(value: object) -> str:
    """Returns a default as YAML can write it; for a section, where its own are."""
    if isinstance(value, Mapping) and value:
        return "as below"
    return f"`{json.dumps(value, ensure_ascii=False)}`"
