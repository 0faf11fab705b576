"""What programs are answered: the structs behind `--json`, the HTTP API and the page.

Every member is always there; what is not known, or does not apply, is null. Public contract: docs/reference/json.md.
"""
