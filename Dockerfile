# One image for nats, control, router and agent, with llama.cpp as the engine; compose.yaml runs it.
FROM python:3.13-slim

ENV UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never \
    PYTHONUNBUFFERED=1 \
    PATH=/app/.venv/bin:$PATH

WORKDIR /app
RUN pip install --no-cache-dir uv==0.13.9

# Dependencies first: they change less often than our own code.
COPY pyproject.toml README.md ./
RUN uv sync --no-cache --no-install-project

COPY schemas schemas
COPY services services
COPY ctl ctl
COPY tui tui
COPY deploy deploy
RUN uv sync --no-cache --no-editable

# A new named volume takes its owner from here.
RUN useradd --create-home flotilla && install -d -o flotilla /var/lib/flotilla
USER flotilla
VOLUME /var/lib/flotilla

CMD ["flotilla", "--help"]
