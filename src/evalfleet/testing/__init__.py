"""Contract tests and fakes for those who write a store, a backend or a benchmark of their own. Needs pytest and hypothesis."""
