"""`make bench view`: the pages of `headrace view` in a real browser, over a large store. `__main__.py` lists the figures.

`made_store.py` makes the store, `hostile_texts.py` the texts that try to break out of a page, `browsing.py` starts the viewer and the
browser, and `page_list.py` finds the addresses of all pages. The other files each measure one thing.
"""
