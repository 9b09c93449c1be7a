"""The page that a browser gets from a service."""

import http.client
import re
from urllib.parse import urlsplit

from tests.api.live_service import LiveService
from tests.architecture.source import ROOT

PAGE_FOLDER = ROOT / "src/punctual/api/dashboard"
FILES = ["/", *(f"/page/{path.name}" for path in PAGE_FOLDER.iterdir() if path.suffix in {".js", ".css", ".svg"})]


def answer(service: LiveService, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(urlsplit(service.served.url).netloc)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        response = connection.getresponse()
        return response.status, {name.lower(): text for name, text in response.getheaders()}, response.read().decode()
    finally:
        connection.close()


def test_the_files_of_the_page_need_no_token_and_all_else_does(service: LiveService) -> None:
    assert [answer(service, "GET", path)[0] for path in FILES] == [200] * len(FILES)
    others = ["/v1/jobs", "/page/", "/page/../guard.py", "/page/%2e%2e/guard.py", "/page/index.html/", "/index.html"]
    assert [answer(service, "GET", path)[0] for path in others] == [401] * len(others)
    assert answer(service, "POST", "/")[0] == 401


def test_every_file_that_the_page_names_is_there(service: LiveService) -> None:
    texts = {path: answer(service, "GET", path)[2] for path in FILES}
    named = set(re.findall(r'(?:src|href)="([^"#]+)"', texts["/"]))
    named |= {f"/page/{name}" for text in texts.values() for name in re.findall(r'(?:from|import) "\./([^"]+)"', text)}
    named |= {name for text in texts.values() for name in re.findall(r'"(/page/[^"]+)"', text)}
    assert named == set(FILES[1:])


def test_what_the_page_loads_comes_from_its_service_alone(service: LiveService) -> None:
    _, headers, text = answer(service, "GET", "/")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]* src=)|\sstyle=|\son\w+=", text)
    assert "set-cookie" not in headers


def test_the_page_is_refused_to_pages_of_other_sites(service: LiveService) -> None:
    for headers in [{"Host": "elsewhere.example"}, {"Origin": "http://elsewhere.example"}]:
        assert answer(service, "GET", "/", **headers)[0] == 403, headers


def test_the_page_is_small(service: LiveService) -> None:
    assert 0 < sum(len(answer(service, "GET", path)[2].encode()) for path in FILES) <= 300_000
