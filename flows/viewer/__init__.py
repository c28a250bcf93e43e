"""`headrace view`: local web pages over a store, read-only.

`web_app.py` puts the pages together and guards them, `view_server.py` runs the server, and `request_index.py` makes a million raw rows
quick to search. Each page is a file of `pages/`, with a template of its name: it asks the store and fills the template; no page writes.
"""
