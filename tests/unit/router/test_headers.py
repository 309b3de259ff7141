from services.router.headers import first, to_client, to_upstream


def test_nothing_about_the_clients_connection_or_identity_goes_upstream() -> None:
    """# spec: T10"""
    sent = [
        (b"Host", b"a"),
        (b"Connection", b"close, X-Own , keep-alive"),
        (b"X-Own", b"1"),
        (b"TE", b"trailers"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Authorization", b"Bearer x"),
        (b"Cookie", b"x"),
        (b"X-Api-Key", b"x"),
        (b"X-Forwarded-Host", b"x"),
        (b"Forwarded", b"x"),
        (b"X-FLOTILLA-Node", b"x"),
        (b"Expect", b"100-continue"),
        (b"OpenAI-Beta", b"kept"),
        (b"Content-Type", b"application/json"),
    ]
    assert to_upstream(sent) == sent[-2:]


def test_nothing_that_names_the_engine_goes_to_the_client() -> None:
    """# spec: T10"""
    came = [
        (b"Server", b"uvicorn"),
        (b"Date", b"x"),
        (b"Connection", b"X-Own"),
        (b"x-own", b"1"),
        (b"Set-Cookie", b"x"),
        (b"Location", b"http://10.0.0.1/"),
        (b"Access-Control-Allow-Origin", b"*"),
        (b"X-Flotilla-Replica", b"x"),
        (b"Content-Encoding", b"gzip"),
        (b"Retry-After", b"3"),
    ]
    assert to_client(came) == came[-2:]


def test_first_of_several() -> None:
    headers = [(b"X-A", b"1"), (b"x-a", b"2")]
    assert first(headers, b"x-a") == b"1"
    assert first(headers, b"x-b") is None
