"""Files of the page, which a browser gets without a token. They contain nothing about jobs: the page requests that."""

from functools import cache

from starlette.responses import Response

from punctual.api.frozen import FOLDER

_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: Policy that forbids foreign and inline content; the page makes requests to its own service only.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def page_file(method: str, path: str) -> Response | None:
    """Return a file of the page; None: the path is not the page's, or the request is not a read."""
    file = _files().get(path)
    if file is None or method != "GET":
        return None
    return Response(file[0], media_type=file[1], headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Return content and media type by path. Only paths in the table are served: no request reaches the disk."""
    named = {path.name: path for path in FOLDER.iterdir() if path.suffix in _MEDIA_TYPES}
    read = {name: (path.read_bytes(), _MEDIA_TYPES[path.suffix]) for name, path in named.items()}
    return {"/": read["index.html"], **{f"/page/{name}": file for name, file in read.items()}}
