"""Turn the errors of clients of stores into ours. Each client has classes of its own for the same problems."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from touchfs.core.errors import ChangedError, NotFoundError, SourceError, SourceTimeoutError, TouchfsError
from touchfs.core.urls import without_secrets

FORBIDDEN, MISSING, TIMED_OUT, CHANGED, TOO_MANY, SERVER_ERROR = 403, 404, 408, 412, 429, 500
# S3 has status 400 for these, too, and its own clients try again.
_PASSING = frozenset({"RequestTimeout", "RequestTimeoutException", "PriorRequestNotComplete"})
# Classes of errors of connections that are no OSError: of aiohttp, botocore, Azure's client and the Hub's.
# Their other errors, as of missing credentials, do not pass.
_CONNECTION_ERRORS = frozenset(
    (
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "HTTPClientError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
    )
)
# Of Azure's client, whose text is a page about each place that may have credentials.
_NO_ACCESS = frozenset({"ClientAuthenticationError"})
# Clients pass options on to what they call.
_UNKNOWN_OPTION = re.compile(r"got an unexpected keyword argument ('\w+')")


@contextmanager
def converted_errors(url: str) -> Iterator[None]:
    """Turn what fsspec and its clients raise into our errors."""
    try:
        yield
    except TouchfsError:
        raise
    except FileNotFoundError as error:
        is_bucket = any(s3_code(each) == "NoSuchBucket" for each in _causes(error))
        raise NotFoundError(f"no such {'bucket' if is_bucket else 'file or directory'}", path=url) from error
    except TimeoutError as error:
        raise SourceTimeoutError("the store does not answer in time", path=url) from error
    except Exception as error:
        if isinstance(error, PermissionError) or type(error).__name__ in _NO_ACCESS:
            message = "the store allows no access: are its credentials set?"
            raise SourceError(message, path=url) from error
        raise SourceError(f"cannot be read: {reason_of(error)}", path=url) from error


def changed_error(url: str) -> ChangedError:
    """The error of a file that is no longer the one that was indexed or opened."""
    return ChangedError("was replaced or changed since it was indexed", path=url)


def reason_of(error: BaseException) -> str:
    """One line about an error, without the secrets of URLs in it."""
    if isinstance(error, TypeError) and (option := _UNKNOWN_OPTION.search(str(error))):
        return f"its client has no option {option[1]}: see --storage-option and --options-file"
    if type(error).__name__ == "TooManyRedirects":
        return "its server sends us from one address to the next, without an end"
    if is_unknown_host(error):
        return "its host is not known"
    if is_refused(error):
        return "the connection was refused: does its server run?"
    # aiohttp's text has the settings of TLS and the arguments of the call, too.
    system = getattr(error, "os_error", None)
    if isinstance(system, OSError) and system.strerror:
        return f"no connection: {system.strerror}"
    return without_secrets(" ".join(str(error).split())) or type(error).__name__


def may_pass(error: Exception) -> bool:
    """True if the same request may succeed later."""
    status = http_status(error)
    if status is not None:
        return status >= SERVER_ERROR or status in (TIMED_OUT, TOO_MANY) or s3_code(error) in _PASSING
    if any(_is_wrong_tls(cause) for cause in _causes(error)):
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError | EOFError) or not names.isdisjoint(_CONNECTION_ERRORS)


def is_unknown_host(error: BaseException) -> bool:
    """True if the name servers know no such host. They may be wrong, but not for long."""
    return any(isinstance(each, socket.gaierror) and each.errno == socket.EAI_NONAME for each in _causes(error))


def is_refused(error: BaseException) -> bool:
    """True if nobody serves at the port of a host."""
    return any(isinstance(each, ConnectionRefusedError) for each in _causes(error))


def _is_wrong_tls(error: BaseException) -> bool:
    """True for a certificate that is not trusted, and for a server that does not speak TLS."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError)
        and getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def s3_code(error: BaseException) -> str | None:
    """The code of an error of S3, if it is one."""
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code"))
    return None


def http_status(error: BaseException) -> int | None:
    return next((status for status in _statuses(error) if isinstance(status, int)), None)


def _statuses(error: BaseException) -> Iterator[object]:
    """Yield what may be the HTTP status of an error, from where each client has it.

    Each attribute is read only when it is needed: reading `code` of an error that has `status` warns of a deprecation.
    """
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        yield getattr(each, "status", None)  # aiohttp
        yield getattr(each, "status_code", None)  # Azure's client
        yield getattr(response, "status_code", None)  # the Hub's
        if isinstance(response, dict):  # botocore
            yield response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if each is error:  # gcsfs. As a cause it may be of aiohttp, which gives a reply that was cut the code 400.
            yield getattr(each, "code", None)
        if isinstance(each, OSError) and str(each).startswith("Forbidden: "):  # gcsfs says no more about this one
            yield FORBIDDEN
