"""Contract tests and fakes for those who write a store, backend, benchmark or agent of their own. Needs pytest and hypothesis."""
