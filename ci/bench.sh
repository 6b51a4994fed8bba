#!/usr/bin/env bash
# Measures keyrange beside Spark's own Kafka connector; see ci/bench/__main__.py for the options.
#   bash ci/bench.sh [--only GROUP]... [--quick] [--tiny] [--out FILE]
set -euo pipefail
ci="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# Set-up talks on stderr here, so that stdout holds the table alone.
bash "$ci/setup.sh" >&2
PYTHONPATH="$ci${PYTHONPATH:+:$PYTHONPATH}" exec "$ci/../.venv/bin/python" -m bench "$@"
