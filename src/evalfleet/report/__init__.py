"""Reading a run for people and programs: summary, live state, text and HTML. Nothing here writes to a store."""
