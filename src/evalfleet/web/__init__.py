"""The dashboard's server: a JSON API, the live feed of events, and the page."""
