"""Redact command lines for records: values that look secret, and those that a user calls secret, are left out."""

import re
from collections.abc import Iterable, Sequence

#: Stands where something was left out.
LEFT_OUT = "***"

#: The last word of an option's or a variable's name whose value is a secret, and words before `key` that make it one.
_SECRET = {
    "password", "passwd", "passphrase", "passcode", "pwd", "pass", "secret", "secrets", "token", "credential", "credentials",
    "apikey", "bearer",
}  # fmt: skip
_KEYS = {"api", "access", "secret", "private", "auth", "account", "encryption", "signing", "ssh", "license"}

#: `scheme://user:password@host`; up to the last `@` before the path, since passwords are not always escaped.
_WITH_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@]{0,200}:)[^\s/]{1,1000}@")
#: `--token=X`, `PASSWORD=X`; and the same within a text, as `{"api_key": "X", ...}`.
_NAMED = re.compile(r"""([-+"'{(,]{0,4}[A-Za-z][\w.-]{0,100}["']?)([=:])(.*)""", re.DOTALL)
_WITHIN = re.compile(r"""(?<![\w.-])([A-Za-z][\w.-]{0,100})(["']?[=:]["']?)([^"',;&}\s]+)""")
_BLANK = re.compile(r"(\s+)")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def redacted(argv: Sequence[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the command line with `***` in place of each of `secrets` and of values that look secret.

    That is the value of an option or a variable with a name such as `--api-key`, `--hf_token` or `PASSWORD`, and the
    password in an address. Anything may be a secret: what is called otherwise is not found.

    Examples
    --------
    >>> redacted(["train", "--api-key", "k3y", "--token=t0p", "https://me:pw@host/x"])
    ('train', '--api-key', '***', '--token=***', 'https://me:***@host/x')
    """
    known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    recorded = []
    names_secret = False
    for word in argv:
        text, names_secret = _redacted_word(word, names_secret)
        for secret in known:
            text = text.replace(secret, LEFT_OUT)
        recorded.append(text)
    return tuple(recorded)


def _redacted_word(word: str, is_secret: bool) -> tuple[str, bool]:
    """Redact a word; return it, and whether it announces a secret in the next; `is_secret`: the one before did."""
    if is_secret and word and not word.startswith("-"):
        return LEFT_OUT, False
    named = _NAMED.fullmatch(word)
    if named and is_secret_name(named[1]):
        return (named[1] + named[2] + LEFT_OUT, False) if named[3] else (word, True)
    if _BLANK.search(word):  # a command line of its own, as after `sh -c`
        parts, names_secret = [], False
        for part in _BLANK.split(word):
            if not part or part.isspace():
                parts.append(part)
            else:
                text, names_secret = _redacted_word(part, names_secret)
                parts.append(text)
        return "".join(parts), names_secret
    text = _WITHIN.sub(lambda match: f"{match[1]}{match[2]}{LEFT_OUT}" if is_secret_name(match[1]) else match[0], word)
    names_next = word.lower() == "bearer" or (word.startswith("-") and is_secret_name(word))
    return _WITH_PASSWORD.sub(rf"\1{LEFT_OUT}@", text), names_next


def is_secret_name(name: str) -> bool:
    """Whether the name looks like a secret's: `--api-key`, `HF_TOKEN`, `wandb.apiKey`, but not `--max-tokens`."""
    words = [word.lower() for word in _WORD.findall(name[-200:])]
    if not words:
        return False
    return words[-1] in _SECRET or (words[-1] == "key" and len(words) > 1 and words[-2] in _KEYS)
