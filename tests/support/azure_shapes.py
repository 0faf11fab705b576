"""What Azure's documentation says of requests that no OpenAPI file at hand describes, written in the form of such files."""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
SHOWN: dict[str, Any] = {"type": "string", "readOnly": True}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
TAGS: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}
MOMENT: dict[str, Any] = {"type": "string", "format": "date-time"}
_SCOPES = ("/subscriptions/{s}", "/subscriptions/{s}/resourcegroups/{g}")


def record(required: str = "", **members: Any) -> dict[str, Any]:
    """An object with these members and no others."""
    return {"type": "object", "properties": members, "required": required.split()}


def listed(item: Any) -> dict[str, Any]:
    return record("value", value={"type": "array", "items": item}, nextLink=TEXT)


def choice(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": [*values]}


def asked(answers: dict[str, Any], body: Any = None, query: str = "") -> dict[str, Any]:
    """One operation: its answers by status (None: without a body), its body, and the parameters besides the version."""
    parameters: list[Any] = [{"in": "query", "name": "api-version", "required": True}]
    parameters += [{"in": "query", "name": name} for name in query.split()]
    if body is not None:
        parameters.append({"in": "body", "name": "body", "required": True, "schema": body})
    responses = {status: {} if schema is None else {"schema": schema} for status, schema in answers.items()}
    return {"parameters": parameters, "responses": responses}


def stored(resource: Any) -> dict[str, Any]:
    """The usual three operations on a resource."""
    return {
        "get": asked({"200": resource}),
        "put": asked({"200": resource, "201": resource}, resource),
        "delete": asked({"200": None, "202": None, "204": None}),
    }


RESOURCE = {"id": SHOWN, "name": SHOWN, "type": SHOWN}
SCHEDULE = record(
    "properties",
    **RESOURCE,
    location=TEXT,
    tags=TAGS,
    properties=record(
        status=choice("Enabled", "Disabled"),
        taskType=TEXT,
        weeklyRecurrence=record(weekdays=TEXTS, time=TEXT),
        dailyRecurrence=record(time={"type": "string", "pattern": r"^([01]\d|2[0-3])[0-5]\d$"}),
        hourlyRecurrence=record(minute={"type": "integer"}),
        timeZoneId=TEXT,
        notificationSettings=record(
            status=choice("Enabled", "Disabled"),
            timeInMinutes={"type": "integer"},
            webhookUrl=TEXT,
            emailRecipient=TEXT,
            notificationLocale=TEXT,
        ),
        createdDate={**MOMENT, "readOnly": True},
        targetResourceId=TEXT,
        provisioningState=SHOWN,
        uniqueIdentifier=SHOWN,
    ),
)
PERMISSION = record(actions=TEXTS, notActions=TEXTS, dataActions=TEXTS, notDataActions=TEXTS)
ASSIGNMENT = record(
    "",
    **RESOURCE,
    location=TEXT,
    identity={},
    systemData={},
    properties=record(
        displayName=TEXT,
        policyDefinitionId=TEXT,
        scope=SHOWN,
        notScopes=TEXTS,
        parameters={"type": "object", "additionalProperties": record(value={})},
        description=TEXT,
        metadata={},
        enforcementMode=choice("Default", "DoNotEnforce"),
        nonComplianceMessages={},
    ),
)
SUBSCRIPTION = record(
    id=SHOWN,
    subscriptionId=SHOWN,
    tenantId=SHOWN,
    displayName=SHOWN,
    state=choice("Enabled", "Warned", "PastDue", "Disabled", "Deleted"),
    subscriptionPolicies={},
    authorizationSource=TEXT,
    managedByTenants={},
    tags=TAGS,
)

NUMBER: dict[str, Any] = {"type": "number"}
COMPARISON = record("name operator values", name=TEXT, operator=choice("In"), values=TEXTS)
BUDGET = record(
    "",
    **RESOURCE,
    eTag=TEXT,
    properties=record(
        "category amount timeGrain timePeriod",
        category=choice("Cost"),
        amount=NUMBER,
        timeGrain=choice("Monthly", "Quarterly", "Annually", "BillingMonth", "BillingQuarter", "BillingAnnual"),
        timePeriod=record("startDate", startDate=MOMENT, endDate=MOMENT),
        filter=record("", dimensions=COMPARISON, tags=COMPARISON, **{"and": {"type": "array", "items": {}}}),
        currentSpend={**record(amount=NUMBER, unit=TEXT), "readOnly": True},
        forecastSpend={**record(amount=NUMBER, unit=TEXT), "readOnly": True},
        notifications={
            "type": "object",
            "additionalProperties": record(
                "enabled operator threshold contactEmails",
                enabled={"type": "boolean"},
                operator=choice("EqualTo", "GreaterThan", "GreaterThanOrEqualTo"),
                threshold={"type": "number", "minimum": 0, "maximum": 1000},
                thresholdType=choice("Actual", "Forecasted"),
                contactEmails=TEXTS,
                contactRoles=TEXTS,
                contactGroups=TEXTS,
                locale=TEXT,
            ),
        },
    ),
)

_AUTHORIZATION = "/providers/microsoft.authorization"
_HISTORY = (  # of the service behind a workspace's discovery address; no version in it
    "/history/v1.0/subscriptions/{s}/resourcegroups/{g}/providers/microsoft.machinelearningservices/workspaces/{w}"
)
RUN_DETAILS = record("runId status logFiles", runId=TEXT, status=TEXT, logFiles=TAGS)
_NAME = record("value", value=TEXT, localizedValue=TEXT)
_VALUE = record(
    "timeStamp", timeStamp=MOMENT, average=NUMBER, minimum=NUMBER, maximum=NUMBER, total=NUMBER, count=NUMBER
)
_SERIES = record(metadatavalues={"type": "array"}, data={"type": "array", "items": _VALUE})
METRIC = record(
    "id type name unit timeseries",
    id=TEXT,
    type=TEXT,
    name=_NAME,
    displayDescription=TEXT,
    errorCode=TEXT,
    errorMessage=TEXT,
    unit=choice("Count", "Bytes", "Seconds", "CountPerSecond", "BytesPerSecond", "Percent"),
    timeseries={"type": "array", "items": _SERIES},
)
METRICS = record(
    "starttime endtime value",
    starttime=TEXT,
    endtime=TEXT,
    interval=TEXT,
    namespace=TEXT,
    resourceregion=TEXT,
    resourceid=TEXT,
    value={"type": "array", "items": METRIC},
)
BATCH_OF_METRICS = asked(
    {"200": record(values={"type": "array", "items": METRICS})},
    record(resourceids={"type": "array", "items": TEXT, "minItems": 1, "maxItems": 50}),
    "starttime endtime interval metricnamespace metricnames aggregation top orderby filter rollupby",
)
DOCUMENTS: dict[str, Any] = {
    "metrics": {
        "info": {"version": "2024-02-01"},
        "paths": {"/monitor/{r}/subscriptions/{s}/metrics:getbatch": {"post": BATCH_OF_METRICS}},
    },
    "history": {
        "info": {"version": "v1.0"},
        "paths": {f"{_HISTORY}/runs/{{r}}/details": {"get": {"responses": {"200": {"schema": RUN_DETAILS}}}}},
    },
    "schedules": {
        "info": {"version": "2018-09-15"},
        "paths": {f"{_SCOPES[1]}/providers/microsoft.devtestlab/schedules/{{n}}": stored(SCHEDULE)},
    },
    "budgets": {
        "info": {"version": "2023-05-01"},
        "paths": {f"{_SCOPES[1]}/providers/microsoft.consumption/budgets/{{n}}": stored(BUDGET)},
    },
    "permissions": {
        "info": {"version": "2022-04-01"},
        "paths": {
            f"{scope}{_AUTHORIZATION}/permissions": {"get": asked({"200": listed(PERMISSION)})} for scope in _SCOPES
        },
    },
    "policies": {
        "info": {"version": "2022-06-01"},
        "paths": {
            f"{scope}{_AUTHORIZATION}/policyassignments": {
                "get": asked({"200": listed(ASSIGNMENT)}, query="$filter $top")
            }
            for scope in _SCOPES
        },
    },
    "subscriptions": {
        "info": {"version": "2022-12-01"},
        "paths": {_SCOPES[0]: {"get": asked({"200": SUBSCRIPTION})}},
    },
}
