"""Clients of one Python library, with its own waits: `herd.py LIBRARY CLIENTS PORT...`.

Each client asks the server at one of the ports, over a connection of its own, again and again; the
library retries what is answered with 503. The server decides how long an answer takes.
"""

import http.client
import sys
import threading

import backoff
import tenacity
import urllib3


class Unavailable(Exception):
    """The server answered with 503."""


def over_a_socket(port):
    """A request over a connection that is kept, which fails with `Unavailable`."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(path):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 503:
            raise Unavailable

    return ask


def with_tenacity(port):
    return tenacity.retry(wait=tenacity.wait_exponential())(over_a_socket(port))


def with_backoff(port):
    return backoff.on_exception(backoff.expo, Unavailable, jitter=None)(over_a_socket(port))


def with_urllib3(port):
    pool = urllib3.HTTPConnectionPool("127.0.0.1", port)
    retry = urllib3.Retry(total=10, backoff_factor=1, status_forcelist=[503])
    return lambda path: pool.request("GET", path, retries=retry)


LIBRARIES = {"tenacity": with_tenacity, "backoff": with_backoff, "urllib3": with_urllib3}


def client(ask, path):
    while True:
        ask(path)


def main():
    library, clients, *ports = sys.argv[1:]
    threading.stack_size(256 * 1024)
    for number in range(int(clients)):
        ask = LIBRARIES[library](int(ports[number % len(ports)]))
        threading.Thread(target=client, args=(ask, f"/call/{library}")).start()


main()
