"""The page: files that a browser gets without a token. They hold nothing of any job; what they show they ask for with one."""

from functools import cache

from starlette.responses import Response

from punctual.api.frozen import FOLDER

_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: Nothing from elsewhere, nothing inline; the page asks its own service only.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def page_file(method: str, path: str) -> Response | None:
    """The answer with a file of the page; None: the path is none of its, or it is not only read."""
    if method not in {"GET", "HEAD"}:
        return None
    file = _files().get(path)
    if file is None:
        return None
    return Response(file[0], media_type=file[1], headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Content and media type by path. Only what is in the table can be had: no path of a request reaches the disk."""
    named = {path.name: path for path in FOLDER.iterdir() if path.suffix in _MEDIA_TYPES}
    read = {name: (path.read_bytes(), _MEDIA_TYPES[path.suffix]) for name, path in named.items()}
    return {"/": read["index.html"], **{f"/page/{name}": file for name, file in read.items()}}
