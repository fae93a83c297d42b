"""Pages: what the tables know, as HTML for a browser: in Airflow, by `llmprism serve`, and as a file.

Each page has a module: `read` asks the warehouse for a few bounded frames, `page` makes HTML of them and knows no
warehouse. `app` serves them all.
"""
