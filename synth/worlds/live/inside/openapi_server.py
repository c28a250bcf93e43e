"""An HTTP API as an MCP server: `python openapi_server.py OPERATIONS_FILE BASE_URL START_S [COMMAND...]`.

OPERATIONS_FILE is JSON that the host wrote from an OpenAPI description (`openapi.py`): tools, with the method, path and places of arguments
of each. COMMAND, if there is one, starts the API in the same box, whose loopback it shares. Every request has the headers that the
environment variable HEADRACE_HEADERS holds, as JSON. The standard library only.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from stdio_server import ToolFailed, serve

ANSWER_BYTES = 64 << 20


class AtHome(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to another host, which would be sent the headers."""

    def redirect_request(self, request, answer, code, message, headers, url):
        if urllib.parse.urlsplit(url)[:2] != urllib.parse.urlsplit(request.full_url)[:2]:
            return None
        return super().redirect_request(request, answer, code, message, headers, url)


OPENER = urllib.request.build_opener(AtHome)


def start_api(command, base_url, start_s):
    """Starts the API, and waits until its port answers."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    ends = time.monotonic() + start_s
    while time.monotonic() < ends:
        if process.poll() is not None:
            sys.exit("the API ended with exit code %d" % process.returncode)
        try:
            urllib.request.urlopen(base_url, timeout=1).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("the API did not answer at %s in %g s" % (base_url, start_s))


def send(base_url, operation, arguments):
    """The JSON value of the answer, or its text. Raises ToolFailed for a status of 400 and above."""
    path, query, body = operation["path"], [], {}
    headers = {"Accept": "application/json"}
    for name, value in arguments.items():
        place = operation["places"].get(name, "body")
        if place == "path":
            path = path.replace("{" + name + "}", urllib.parse.quote(str(value), safe=""))
        elif place == "query":
            query += [(name, text_of(each)) for each in (value if isinstance(value, list) else [value])]
        elif place == "header":
            headers[name] = text_of(value)
        else:
            body[name] = value
    url = base_url.rstrip("/") + path + ("?" + urllib.parse.urlencode(query) if query else "")
    data = None
    if operation["has_body"]:
        data = json.dumps(body["body"] if operation["is_whole_body"] else body).encode()
        headers["Content-Type"] = "application/json"
    headers.update(json.loads(os.environ.get("HEADRACE_HEADERS", "{}")))
    request = urllib.request.Request(url, data=data, headers=headers, method=operation["method"])
    try:
        with OPENER.open(request) as answered:
            return parsed(answered.read(ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        told = parsed(error.read(ANSWER_BYTES))
        raise ToolFailed(told if isinstance(told, str) and told else json.dumps({"status": error.code, "detail": told})) from None


def text_of(value):
    return json.dumps(value) if isinstance(value, (bool, dict, list)) or value is None else str(value)


def parsed(data):
    text = data.decode("utf-8", errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        operations = json.load(file)
    base_url, start_s, command = sys.argv[2], float(sys.argv[3]), sys.argv[4:]
    if command:
        start_api(command, base_url, start_s)

    def call(name, arguments):
        if name not in operations:
            raise ToolFailed("no such tool")
        return send(base_url, operations[name], arguments)

    serve("openapi", [operation["tool"] for operation in operations.values()], call)


if __name__ == "__main__":
    main()
