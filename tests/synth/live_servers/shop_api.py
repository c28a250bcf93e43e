"""A small HTTP API for tests, with its OpenAPI description: `python shop_api.py`. Its state is items.json in the working folder."""

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

FILE = "items.json"
ITEMS = {
    "i1": {"name": "mug", "price": 7, "stock": 3},
    "i2": {"name": "kettle", "price": 35, "stock": 1},
    "i3": {"name": "scale", "price": 22, "stock": 9},
}

_ID = {"name": "item_id", "in": "path", "required": True, "schema": {"type": "string"}}
_BODY = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Price"}}}, "required": True}
DESCRIPTION = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/items": {"get": {"operationId": "list_items", "summary": "List all items."}},
        "/items/{item_id}": {
            "parameters": [_ID],
            "get": {"operationId": "get_item", "summary": "Get an item."},
            "delete": {"operationId": "delete_item", "summary": "Delete an item."},
        },
        "/items/{item_id}/price": {
            "parameters": [_ID],
            "put": {"operationId": "set_price", "summary": "Set the price of an item.", "requestBody": _BODY},
        },
    },
    "components": {
        "schemas": {
            "Price": {"type": "object", "properties": {"price": {"type": "integer", "minimum": 1, "maximum": 90}}, "required": ["price"]}
        }
    },
}


def load():
    return json.load(open(FILE)) if os.path.exists(FILE) else dict(ITEMS)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        items = load()
        if self.path == "/items":
            return self.answer(200, [{"item_id": key, **item} for key, item in sorted(items.items())])
        key = self.path.split("/")[2] if self.path.startswith("/items/") else ""
        return self.answer(200, {"item_id": key, **items[key]}) if key in items else self.answer(404, {"detail": "no such item"})

    def do_DELETE(self):
        items, key = load(), self.path.split("/")[2]
        if key not in items:
            return self.answer(404, {"detail": "no such item"})
        del items[key]
        json.dump(items, open(FILE, "w"))
        return self.answer(200, {"deleted": key})

    def do_PUT(self):
        items, key = load(), self.path.split("/")[2]
        if key not in items:
            return self.answer(404, {"detail": "no such item"})
        items[key]["price"] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["price"]
        json.dump(items, open(FILE, "w"))
        return self.answer(200, {"item_id": key, **items[key]})

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if not os.path.exists(FILE):
        json.dump(ITEMS, open(FILE, "w"))
    HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
