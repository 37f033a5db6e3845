"""Requests to services that are named in the config: they follow no redirects, and no proxy of the environment."""

from __future__ import annotations

from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


open_url = build_opener(ProxyHandler({}), _NoRedirects()).open
