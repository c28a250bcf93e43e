"""`headrace view`: local web pages over a store; they only read, without `--write`.

`web_app.py` puts the pages together and guards them, `view_server.py` runs the server, and `indexes/` makes a million raw rows
quick to search. Each page is a file of `pages/`, with a template of its name: it asks the store and fills the template; only
`pages/by_hand.py` writes.
"""
