"""Pages of `touchfs serve`, parsed: their links, their texts, and whatever could run."""

import json
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urljoin

import numpy as np
from tree_servers import ask
from wav_files import wav_of

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


class AtPort(NamedTuple):
    """A server of this process."""

    port: int

    def ask(self, path="/", method="GET", **headers):
        return ask(self.port, path, method, **headers)


class Parsed(HTMLParser):
    """Elements with their attributes, in order; texts outside of style and script; the URLs that it names."""

    def __init__(self, body, path="/"):
        super().__init__()
        self.elements, self.texts, self.path = [], [], path
        self.feed(body.decode())
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)

    @property
    def urls(self):
        """Paths of links and pictures, from the root of the server on."""
        named = [attributes.get(name) for _, attributes in self.elements for name in ("href", "src", "srcset")]
        return [urljoin(self.path, url).partition("#")[0] for url in named if url is not None]

    def marked(self, name):
        """The elements of a class."""
        return [found for _, found in self.elements if name in (found.get("class") or "").split()]

    def all(self, tag, **attributes):
        return [found for name, found in self.elements if name == tag and attributes.items() <= found.items()]


def page(server, path, status=200, **headers):
    """A page as a browser gets it."""
    got = server.ask(path, Accept=BROWSER, **headers)
    assert (got.status, got.headers["Content-Type"]) == (status, "text/html; charset=utf-8"), got.body[:300]
    return Parsed(got.body, path)


def values(server, path, status=200):
    """The same page as JSON."""
    got = server.ask(path, Accept="application/json")
    assert (got.status, got.headers["Content-Type"]) == (status, "application/json"), got.body[:300]
    return json.loads(got.body)


def tone(seconds, hertz=1000, rate=8000, channels=1):
    """A WAV of 16-bit PCM."""
    sound = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    return wav_of(np.repeat((sound * 32767).astype("<i2"), channels), rate, channels)
