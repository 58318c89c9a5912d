"""The OpenAPI document as one page of HTML, which loads nothing from anywhere."""

import json
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-top: 1px solid #8884; padding-top: 1rem; }
code, pre { font: 0.9rem ui-monospace, monospace; }
pre { background: #8881; padding: 0.75rem; overflow-x: auto; border-radius: 0.4rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #8883; }
.method { font-weight: 600; color: #2a7de1; }
"""
EXAMPLES: dict[str, Any] = {
    "/embed": {"inputs": ["A first text.", "A second one."]},
    "/embed_all": {"inputs": "A text."},
    "/similarity": {"inputs": {"source_sentence": "It rains.", "sentences": ["The streets are wet.", "I like tea."]}},
    "/v1/embeddings": {"input": "A text.", "model": "NAME"},
    "/predict": {"inputs": "A text."},
    "/rerank": {"query": "What falls from clouds?", "texts": ["Rain.", "Bread."]},
    "/tokenize": {"inputs": "A text."},
    "/decode": {"ids": [7, 8, 9]},
    "/fill": {"inputs": "The capital of France is [MASK]."},
    "/generate": {"inputs": "The old mill", "tokens": 5},
    "/tag": {"inputs": "Anna lives in Oslo."},
    "/answer": {"inputs": {"question": "Who lives there?", "context": "Anna lives in Oslo."}},
    "/translate": {"inputs": "two three", "n_best": 2},
    "/see": {"inputs": "BASE64"},
}


def page(document: dict[str, Any]) -> str:
    """All routes, their fields, and a command to try them."""
    schemas = document.get("components", {}).get("schemas", {})
    parts = [
        _route(path, method, told, schemas)
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]
    title = escape(document["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{escape(document['info'].get('description', ''))} "
        f'The same as a document: <a href="openapi.json">openapi.json</a>.</p>{"".join(parts)}</body></html>'
    )


def _route(path: str, method: str, told: dict[str, Any], schemas: dict[str, Any]) -> str:
    head = f'<h2><span class="method">{method.upper()}</span> <code>{escape(path)}</code></h2>'
    said = f"<p>{escape(told.get('description') or told.get('summary', ''))}</p>"
    content = told.get("requestBody", {}).get("content", {})
    schema = _resolved(content.get("application/json", {}).get("schema", {}), schemas)
    answers = "".join(
        f"<tr><td>{status}</td><td>{escape(one.get('description', ''))}</td></tr>"
        for status, one in told.get("responses", {}).items()
    )
    return (
        f"{head}{said}{_fields(schema, schemas)}{_example(path, method)}"
        f"<details><summary>Answers</summary><table>{answers}</table></details>"
    )


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    properties = schema.get("properties", {})
    if not properties:
        return ""
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_type(one, schemas))}</td>"
        f"<td>{'required' if name in required else escape(json.dumps(one.get('default')))}</td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for name, one in properties.items()
    )
    return f"<table><tr><th>field</th><th>type</th><th>default</th><th></th></tr>{rows}</table>"


def _example(path: str, method: str) -> str:
    if method != "post" or path not in EXAMPLES:
        return ""
    command = f"curl $ADDRESS{path} -H 'Content-Type: application/json' -d '{json.dumps(EXAMPLES[path])}'"
    return f"<pre>{escape(command)}</pre>"


def _type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    if "$ref" in schema:
        return " and ".join(_resolved(schema, schemas).get("properties", {})) or schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one, schemas) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(json.dumps, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), schemas)}"
    return str(schema.get("type", "anything"))


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    return schemas.get(schema["$ref"].rpartition("/")[2], {}) if "$ref" in schema else schema
