"""The OpenAPI document holds: what it describes never makes the server fail, and answers are as it says."""

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

EXAMPLES = 20
"""Requests that are tried for each route."""


def test_no_request_that_the_document_describes_fails(served):
    document = schemathesis.openapi.from_url(f"{served.address}/openapi.json")
    tried = []
    for found in document.get_all_operations():
        operation = found.ok()
        tried.append(operation.path)
        _try(operation)
    assert {"/embed", "/predict", "/tag", "/translate", "/see", "/generate", "/health", "/info"} <= set(tried)
    assert len(tried) >= 19
    failures = [line for line in served.log.file.getvalue().splitlines() if " error " in line]
    assert failures == []


def _try(operation) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def check(case) -> None:
        case.call_and_validate(
            checks=[not_a_server_error, content_type_conformance, response_schema_conformance], timeout=30
        )

    given(case=operation.as_strategy())(check)()
